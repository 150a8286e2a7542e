"""How every process of this project talks to Redis through Celery, whether it consumes or only publishes."""

from __future__ import annotations

from typing import Any

from celery import Celery

from tasks.publish import CONTROL_QUEUE, PRIORITY_SEPARATOR, PRIORITY_STEPS
from tasks.settings import Settings


def connection_options(settings: Settings) -> dict[str, Any]:
    """Celery configuration shared by workers and publishers: where the broker is, the form of its keys and texts."""
    return {
        "broker_url": settings.redis_url.get_secret_value() if settings.redis_url else None,
        "result_backend": settings.result_backend if settings.redis_url else None,
        "broker_transport": "tasks.transport:HintTransport",
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            # Only submissions are acknowledged late, and storing one again changes nothing; so one whose worker died
            # comes back soon, and a turn that merely waited for its slot comes back as a harmless second hint.
            "visibility_timeout": 60,
            # Look for such messages every ten seconds and not only every tenth time.
            "unacked_restore_throttle": 1,
            "priority_steps": list(PRIORITY_STEPS),
            "sep": PRIORITY_SEPARATOR,
            "queue_order_strategy": "round_robin",
            "socket_keepalive": True,
            "health_check_interval": 10,
            # Publishing without Redis fails at once instead of after six seconds: the sweeper publishes what is due.
            "max_retries": 2,
            "interval_start": 0,
            "interval_step": 0.2,
            "interval_max": 0.2,
        },
        "result_backend_transport_options": {"health_check_interval": 10},
        "redis_backend_health_check_interval": 10,
        "redis_socket_keepalive": True,
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "result_expires": settings.result_expires_seconds,
        "task_default_queue": CONTROL_QUEUE,
        "task_create_missing_queues": True,
    }


def publisher_app(settings: Settings) -> Celery:
    """An application that publishes and reads results but runs nothing: cheap, and never the process's current one."""
    app = Celery("vancetope-cli", set_as_current=False)
    app.conf.update(**connection_options(settings))
    return app
