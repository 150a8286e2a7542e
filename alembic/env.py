"""Alembic's entry: one DSN, from `-x dsn=…`, the caller's config attribute `dsn`, or VANCETOPE_DATABASE_URL."""

import logging
import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, make_url, pool

from models.tables import metadata
from tasks.dev.migrate import LOCK

if context.config.cmd_opts is not None:
    # Alembic's own command line is silent otherwise; a program that calls it has its own logging.
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


def database_url() -> str:
    """The DSN as SQLAlchemy wants it, with psycopg as the driver."""
    dsn = (
        context.get_x_argument(as_dictionary=True).get("dsn")
        or context.config.attributes.get("dsn")
        or os.environ.get("VANCETOPE_DATABASE_URL")
    )
    if not dsn:
        raise CommandError("no database: set VANCETOPE_DATABASE_URL")
    return make_url(dsn).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def run_offline() -> None:
    """Print the SQL instead of running it."""
    context.configure(dialect_name="postgresql", target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def migrate(connection: Connection) -> None:
    # All pending migrations or none. Two migrators at once (a scaled deployment) queue up at the lock, which falls with
    # the transaction.
    context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
    with context.begin_transaction():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        context.run_migrations()


def run_online() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        migrate(connection)
        return
    engine = create_engine(database_url(), poolclass=pool.NullPool)
    with engine.connect() as own:
        migrate(own)
    engine.dispose()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
