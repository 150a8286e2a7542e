"""What Prometheus scrapes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from tasks.api.access import scraper
from tasks.api.parts import Here

router = APIRouter(tags=["metrics"])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    dependencies=[Depends(scraper)],
    response_class=PlainTextResponse,
)
def metrics(here: Here, accept: Annotated[str, Header()] = "") -> Response:
    """Figures of the whole installation, in Prometheus's text format or, if asked for, as OpenMetrics. The same from
    every API process, and at most a few seconds old. Needs a token of the installation's own tenant."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(here.metrics)
    encoder, content_type = choose_encoder(accept)
    return Response(encoder(registry), headers={"Content-Type": content_type})
