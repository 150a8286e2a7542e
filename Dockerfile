# syntax=docker/dockerfile:1

# One image for migrate, worker, beat, the API and Flower; docker-compose.yml says which command runs.

FROM python:3.11-slim AS build
RUN pip install --no-cache-dir uv
WORKDIR /app
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
# The dependencies alone first: this layer is built again only when the lock changes.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-install-project --extra flower --extra otel
COPY README.md ./
COPY tasks tasks
COPY engines engines
COPY models models
COPY alembic alembic
COPY recipes recipes
RUN uv sync --frozen --extra flower --extra otel

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /app --shell /usr/sbin/nologin vancetope \
    && install -d -o vancetope -g vancetope /state
# The environment is tied to its path, so both stages use the same one.
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER vancetope
# Beat's schedule; nothing that would be missed.
VOLUME /state
CMD ["celery", "-A", "tasks.celery", "worker", "-P", "threads", "-c", "8"]
