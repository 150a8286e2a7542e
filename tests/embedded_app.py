"""A Celery application with one task, for tests of the stack that must not depend on the real one."""

import os

from celery import Celery

app = Celery("embedded", broker=os.environ["VANCETOPE_REDIS_URL"], backend=os.environ["VANCETOPE_REDIS_URL"])
app.conf.broker_connection_retry_on_startup = True


@app.task(name="embedded.pid")
def pid() -> int:
    return os.getpid()
