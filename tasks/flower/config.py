"""Flower's configuration: ``celery -A tasks.celery flower --conf=tasks/flower/config.py``.

Flower runs this file and takes each name that is one of its options. Readable tasks that link to the console; and
without credentials it is reachable from this machine only.
"""

import ipaddress
import sys

from flower.options import options as _given  # type: ignore[import-untyped]
from flower.urls import settings as _tornado  # type: ignore[import-untyped]

from tasks.flower.shown import Formatter, templates
from tasks.settings import current


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if not (_given.basic_auth or _given.auth or _given.unix_socket):
    if _given.address and not _is_loopback(_given.address):
        sys.exit(
            f"Flower would listen on {_given.address} for anybody: set FLOWER_BASIC_AUTH=user:password,"
            " or --address=127.0.0.1 for this machine alone"
        )
    address = _given.address or "127.0.0.1"

tasks_columns = "name,kwargs,state,result,uuid,received,runtime,worker"
_tornado["template_loader"] = templates()
_formatter = Formatter(current().console_url)


def format_task(task: object) -> object:
    """A function, because Flower takes nothing else that can be called."""
    return _formatter(task)
