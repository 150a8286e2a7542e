"""The migrations build what `models.tables` says, can be undone, and can be run again.

`alembic check` misses renamed CHECKs and changed predicates of partial indexes, so the catalogues are compared.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from services import new_database
from sqlalchemy import MetaData, create_engine, make_url

from models.tables import metadata
from tasks.dev import migrate

# What PostgreSQL itself knows of a schema, in its own words. Each query yields (name, definition).
CATALOGUE = {
    "tables": """
        SELECT relname, concat_ws(' ', relkind, relpersistence, array_to_string(reloptions, ','))
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
    """,
    "columns": """
        SELECT c.relname || '.' || a.attname, concat_ws(' ',
            format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
            'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), 'IDENTITY ' || nullif(a.attidentity::text, ''),
            'GENERATED ' || nullif(a.attgenerated::text, ''), 'COLLATE ' || nullif(co.collname::text, 'default'),
            'STORAGE ' || a.attstorage::text, 'COMPRESSION ' || nullif(a.attcompression::text, ''))
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation co ON co.oid = a.attcollation
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
        AND a.attnum > 0 AND NOT a.attisdropped
    """,
    "constraints": """
        SELECT conrelid::regclass || '.' || conname, concat_ws(' ', pg_get_constraintdef(oid), convalidated)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "sequences": """
        SELECT sequencename,
            concat_ws(' ', data_type, start_value, min_value, max_value, increment_by, cycle, cache_size)
        FROM pg_sequences WHERE schemaname = 'public'
    """,
    "functions": """
        SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace AND p.prokind IN ('f', 'p')
    """,
    "triggers": """
        SELECT tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    """,
    "types": """
        SELECT t.typname, string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder)
        FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
        WHERE t.typnamespace = 'public'::regnamespace GROUP BY t.typname
    """,
    "extensions": "SELECT extname, extversion FROM pg_extension",
    "comments": """
        SELECT concat_ws(' ', classoid::regclass, pg_describe_object(classoid, objoid, objsubid)), description
        FROM pg_description
        WHERE objoid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace
            UNION SELECT oid FROM pg_constraint WHERE connamespace = 'public'::regnamespace
            UNION SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
    """,
}

Catalogue = dict[str, dict[str, str]]


def catalogue(dsn: str) -> Catalogue:
    with psycopg.connect(dsn) as connection:
        found = {kind: dict(connection.execute(query).fetchall()) for kind, query in CATALOGUE.items()}
    # Alembic's own table is in no model.
    return {
        kind: {name: text for name, text in rows.items() if "alembic_version" not in name}
        for kind, rows in found.items()
    }


def create_all(dsn: str, tables: MetaData) -> None:
    engine = create_engine(make_url(dsn).set(drivername="postgresql+psycopg"))
    try:
        tables.create_all(engine)
    finally:
        engine.dispose()


def revisions() -> list[str]:
    """Oldest first."""
    scripts = ScriptDirectory.from_config(migrate.configuration(""))
    return [script.revision for script in scripts.walk_revisions()][::-1]


def test_the_catalogue_sees_what_autogenerate_does_not(postgres_admin_url: str) -> None:
    variants = [
        "CREATE TABLE t (a int, CONSTRAINT a_check CHECK (a > 0)); CREATE INDEX i ON t (a) WHERE a > 1",
        "CREATE TABLE t (a int, CONSTRAINT b_check CHECK (a > 0)); CREATE INDEX i ON t (a) WHERE a > 1",
        "CREATE TABLE t (a int, CONSTRAINT a_check CHECK (a > 0)); CREATE INDEX i ON t (a) WHERE a > 2",
        "CREATE TABLE t (a int, CONSTRAINT a_check CHECK (a > 0)) WITH (fillfactor = 70); "
        "CREATE INDEX i ON t (a) WHERE a > 1",
    ]
    seen = []
    for statements in variants:
        with new_database(postgres_admin_url) as dsn:
            with psycopg.connect(dsn) as connection:
                connection.execute(statements)
            seen.append(catalogue(dsn))
    assert all(seen.count(one) == 1 for one in seen)


def test_there_is_one_line_of_migrations() -> None:
    scripts = ScriptDirectory.from_config(migrate.configuration(""))
    assert len(scripts.get_heads()) == 1
    assert len(scripts.get_bases()) == 1


def test_migrations_build_what_the_models_say(database_url: str, empty_database_url: str) -> None:
    create_all(empty_database_url, metadata)
    migrated, modelled = catalogue(database_url), catalogue(empty_database_url)
    assert modelled["tables"], "models.tables is empty"
    for kind in CATALOGUE:
        assert migrated[kind] == modelled[kind], kind


def test_autogenerate_has_nothing_to_add(database_url: str) -> None:
    command.check(migrate.configuration(database_url))


def test_each_migration_can_be_undone_and_done_again(empty_database_url: str) -> None:
    empty = catalogue(empty_database_url)
    before: list[Catalogue] = [empty]
    for revision in revisions():
        migrate.upgrade(empty_database_url, revision)
        before.append(catalogue(empty_database_url))
        migrate.downgrade(empty_database_url, "-1")
        assert catalogue(empty_database_url) == before[-2], f"downgrade of {revision} leaves something behind"
        migrate.upgrade(empty_database_url, revision)
        assert catalogue(empty_database_url) == before[-1], f"second upgrade to {revision} differs from the first"
    migrate.downgrade(empty_database_url, "base")
    assert catalogue(empty_database_url) == empty
    migrate.upgrade(empty_database_url)
    assert catalogue(empty_database_url) == before[-1]


def test_plans_that_are_under_way_go_on_after_the_upgrade_to_places_and_owners(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "20261130_inbox")
    process, quiet = uuid4(), uuid4()
    with psycopg.connect(empty_database_url) as connection:
        for each in (process, quiet):
            connection.execute(
                "INSERT INTO processes (id, root_id, tenant, project, engine, recipe_name) VALUES"
                " (%s, %s, 't', 'p', 'marvin', 'marvin')",
                (each, each),
            )
        for parent, mode in ((1, "PARALLEL"), (2, "SEQUENTIAL")):
            connection.execute(
                "INSERT INTO nodes (id, process_id, kind, phase, status, awaiting_post_children, child_mode)"
                " OVERRIDING SYSTEM VALUE VALUES (%s, %s, 'WORKER', 'SCOPE', 'DONE', true, %s)",
                (parent, process if parent == 1 else quiet, mode),
            )
            for place, due in ((1, "now()"), (2, "NULL")):
                connection.execute(
                    "INSERT INTO nodes (id, process_id, parent_id, order_key, depth, kind, phase, due_at)"
                    f" OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s, 1, 'WORKER', 'SCOPE', {due})",
                    (parent * 10 + place, process if parent == 1 else quiet, parent, [place]),
                )
        connection.execute(
            "INSERT INTO inbox_items (tenant, project, process_id, node_id, type, criticality, title, body, payload,"
            " expires_at) VALUES ('t', 'p', %s, 11, 'FEEDBACK', 'NORMAL', 'q', '', '{}', now())",
            (process,),
        )
    migrate.upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        waiting = connection.execute("SELECT id FROM nodes WHERE waits_for_place").fetchall()
        places = dict(connection.execute("SELECT id, max_parallel FROM processes").fetchall())
        item = connection.execute("SELECT originator, tags FROM inbox_items").fetchone()
    assert waiting == [(12,)]
    assert places == {process: 8, quiet: None}
    assert item == (f"marvin:{process}", ["marvin"])


def test_two_migrators_at_once_wait_for_each_other(empty_database_url: str) -> None:
    # Alembic keeps its context in a module, so two of them need two processes; this is what they do to each other.
    with ThreadPoolExecutor(1) as pool, psycopg.connect(empty_database_url) as first:
        first.execute("SELECT pg_advisory_xact_lock(%s)", (migrate.LOCK,))
        second = pool.submit(migrate.upgrade, empty_database_url)
        with psycopg.connect(empty_database_url, autocommit=True) as watcher:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while watcher.execute(waiting).fetchone() != (1,):
                assert not second.done(), second.result()
        first.commit()
        second.result()


def test_sql_can_be_printed_instead_of_run(empty_database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not revisions():
        pytest.skip("no migration yet")
    command.upgrade(migrate.configuration(empty_database_url), "head", sql=True)
    printed = capsys.readouterr().out
    assert "CREATE TABLE processes" in printed
    assert not catalogue(empty_database_url)["tables"]
