"""The text of the commit: parts hung off ``moved``, put together once for each shape of commit.

Lock order, the same in every statement of the store: processes before nodes, ancestors before descendants, a node
before its parent, nodes before inbox items and documents, documents by path. (Parts the final SELECT reads, those that
lock nodes, run before those it does not: items and documents.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from models.store.inbox_sql import ASK, WITHDRAW
from models.store.outbox_sql import told_of_closing

# A node below the root that is at work: due, leased, or delayed; not one that is parked until a sub-process has closed.
# The words of the index ``nodes_working_idx``, which is small however large the tree is.
WORKING = "parent_id IS NOT NULL AND due_at IS NOT NULL AND (status <> 'WAITING' OR open_calls = 0)"


def only_people(process: str, but: str = "NULL::bigint") -> str:
    """SQL: nobody in the process is at work or waits for a sub-process. but: a node that does not count."""
    own = f"process_id = {process} AND id IS DISTINCT FROM {but}"
    return f"""NOT EXISTS (SELECT 1 FROM nodes WHERE {own} AND {WORKING})
    AND NOT EXISTS (SELECT 1 FROM nodes WHERE {own} AND status = 'WAITING' AND open_calls > 0)
    AND NOT EXISTS (SELECT 1 FROM nodes WHERE {own} AND depth = 0 AND due_at IS NOT NULL)"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a commit has to write; each shape is one prepared statement."""

    settles: bool
    has_parent: bool
    closes: bool
    has_caller: bool
    counted: bool
    is_root: bool
    messages: bool
    artifacts: bool
    children: bool
    processes: bool
    documents: bool
    model: bool
    sibling: bool
    parks: bool
    asks: bool
    withdraws: bool
    ledger: bool
    keeps: bool

    @property
    def may_block(self) -> bool:
        """Whether this may be the last node at work of a process in which people are waited for."""
        return self.settles and self.has_parent and not self.sibling

    @property
    def shares_rows(self) -> bool:
        """Whether other nodes' commits want the same rows: the parent's counter of children, the root's budget.

        Rows stay locked until the commit is on disk, so these would wait for the disk one after the other. Such a
        commit is flushed in a step of its own instead (``Database.flush``), when its locks are gone: all at once.
        """
        moves_others = self.settles or self.parks or self.children or self.asks or self.counted
        return (self.has_parent and moves_others) or (self.counted and not self.is_root)


_MOVED = """moved AS (
  UPDATE nodes n
     SET status = %(status)s, phase = %(phase)s, cursor = %(cursor)s::jsonb, transport = %(transport)s::jsonb,
         failure = %(failure)s, awaiting_post_children = %(awaiting)s,
         child_mode = coalesce(%(child_mode)s, child_mode),
         open_children = n.open_children + %(new_children)s, open_calls = n.open_calls + %(new_calls)s,
         spawned_calls = n.spawned_calls + %(new_calls)s,
         -- Parked on sub-processes that all closed while this turn ran (it was woken early): due, or nobody wakes it.
         due_at = CASE WHEN %(parked_on_calls)s AND n.open_calls + %(new_calls)s = 0 THEN now()
                       ELSE now() + make_interval(secs => %(delay)s) END,
         next_hint_at = CASE WHEN %(parked_on_calls)s AND n.open_calls + %(new_calls)s = 0 THEN now()
                             WHEN %(delay)s = 0 THEN now() + make_interval(secs => %(hint_grace)s)
                             ELSE now() + make_interval(secs => %(delay)s) END,
         hints = 0,
         turn = n.turn + 1, losses = 0, {lease},
         reserved_calls = 0, reserved_tokens = 0, reserved_cost_usd = 0,
         settled_at = CASE WHEN %(settled)s THEN now() END
    FROM p
   WHERE n.id = %(node)s AND n.turn = %(turn)s AND n.fence = %(fence)s AND n.process_id = p.id
  RETURNING n.id, n.turn, n.parent_id, n.depth, n.started_at{seen})"""

_LETTING_GO = {"lease": "lease_owner = NULL, lease_expires_at = NULL", "seen": ""}
# Commit and next claim in one: only where that claim would find nothing to change in the process and nothing to refuse.
# The status is that of the row under its lock. The clock itself: the statement may have waited for the locks a while.
_KEEPING = {
    "lease": """lease_owner = CASE WHEN p.status = 'RUNNING' THEN %(keep_owner)s::text END,
         lease_expires_at = CASE WHEN p.status = 'RUNNING'
                                 THEN clock_timestamp() + make_interval(secs => %(keep_seconds)s) END,
         fence = n.fence + 1 + (random() * 1000000000)::bigint""",
    "seen": ", n.fence, n.lease_owner, n.cursor, n.transport",
}
_OWN = "SELECT 'own' AS source, id, turn, NULL::text AS engine, NULL::int AS priority FROM moved"
# What the next turn's view cannot take over from this one's: what is stored is not always what was sent (1e30 becomes
# an integer), and the root's limits are as they are now.
_NEXT_TURN = """SELECT 'own' AS source, moved.id, moved.turn, NULL::text AS engine, NULL::int AS priority,
       moved.lease_owner IS NOT NULL, moved.fence, moved.cursor, moved.transport,
       root.max_calls IS NOT NULL OR root.max_tokens IS NOT NULL OR root.max_cost_usd IS NOT NULL,
       root.deadline_at, coalesce(root.deadline_at <= clock_timestamp(), false)
  FROM moved, processes root WHERE root.id = %(root)s"""

_PHASE_RECORD = """recorded AS (
  INSERT INTO phase_records (node_id, turn, phase, iteration, reason, forced, output, model, tokens, cost_usd,
                             replaced_characters, lane_note, recorded, started_at)
  SELECT id, %(turn)s, %(note_phase)s, %(iteration)s, %(reason)s, %(forced)s, %(output)s::jsonb, %(model)s,
         %(tokens)s::bigint, %(cost)s::numeric, %(replaced)s, %(lane_note)s, %(recorded)s::bytea,
         now() - make_interval(secs => %(elapsed)s) FROM moved)"""

_MESSAGES = """appended AS (
  INSERT INTO messages (process_id, node_id, role, kind, content)
  SELECT %(process)s, moved.id, m.role, m.kind, m.content
    FROM moved, ROWS FROM (json_to_recordset(%(messages)s::json) AS (role text, kind text, content text))
         WITH ORDINALITY AS m (role, kind, content, place) ORDER BY m.place)"""

_ARTIFACTS = """filed AS (
  INSERT INTO artifacts (node_id, key, content)
  SELECT moved.id, a.key, a.content
    FROM moved, json_to_recordset(%(artifacts)s::json) AS a (key text, content text)
  ON CONFLICT (node_id, key) DO UPDATE SET content = excluded.content)"""

_DOCUMENTS = """written AS (
  INSERT INTO documents (tenant, project, path, kind, title, mime, content, node_id)
  SELECT owner.tenant, owner.project, d.path, d.kind, d.title, d.mime,
         CASE WHEN d.time_at IS NULL THEN d.content
              ELSE left(d.content, d.time_at) || to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                   || substr(d.content, d.time_at + 1) END, moved.id
    FROM moved, processes owner, json_to_recordset(%(documents)s::json)
         AS d (path text, kind text, title text, mime text, content text, time_at int)
   WHERE owner.id = %(process)s ORDER BY d.path
  ON CONFLICT (tenant, project, path) DO UPDATE
     SET version = documents.version + 1, kind = excluded.kind, title = coalesce(excluded.title, documents.title),
         mime = excluded.mime, content = excluded.content, node_id = excluded.node_id, updated_at = now()
  RETURNING id, version, kind, title, content, node_id
), versioned AS (
  INSERT INTO document_versions (document_id, version, kind, title, content, node_id)
  SELECT w.id, w.version, w.kind, w.title, w.content, w.node_id FROM moved, written w)"""

_MODEL = """modelled AS (
  INSERT INTO model_specs (tenant, project, model_id, version, spec, spec_version, evolution, process_id, node_id)
  SELECT owner.tenant, owner.project, %(model_id)s, %(model_version)s, %(model_spec)s::json, %(model_spec_version)s,
         %(model_evolution)s::json, owner.id, moved.id
    FROM moved, processes owner WHERE owner.id = %(process)s
  ON CONFLICT (tenant, project, model_id, version) DO NOTHING)"""

_LEDGER = """ledger AS (
  INSERT INTO llm_calls (node_id, turn, lane, process_id, root_id, attempt, provider, model, error_kind, stop_reason,
                         structured_path, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd,
                         latency_ms, reached_inference)
  SELECT moved.id, %(turn)s, %(call_lane)s, %(process)s, %(root)s, %(call_attempt)s, %(call_provider)s, %(model)s,
         %(call_error)s, %(call_stop)s, %(call_path)s, %(call_input)s, %(call_output)s, %(call_cache_read)s,
         %(call_cache_write)s, %(cost)s::numeric, %(call_latency)s, %(call_reached)s FROM moved)"""

# How many of the children may be at work at once with those nodes of the process that are. The count is as old as this
# statement; if somebody else has started nodes since (seen on the row that is locked), only the own place is handed on,
# and later commits or the sweeper start the rest. So no two of them fill the same places.
_ROOM = f"""room AS MATERIALIZED (
  SELECT CASE WHEN %(child_mode)s::text = 'SEQUENTIAL' THEN 1 WHEN %(width)s::int IS NULL THEN 2147483647
              WHEN p.fan_outs <> seen.fan_outs THEN 1
              ELSE greatest(%(width)s::int - (SELECT count(*) FROM nodes
                     WHERE process_id = %(process)s AND id <> %(node)s AND {WORKING}), 0) END AS places
    FROM p, processes seen WHERE seen.id = %(process)s)"""

_CHILDREN = """children AS (
  INSERT INTO nodes (process_id, parent_id, order_key, depth, kind, goal, phase, cursor, due_at, next_hint_at,
                     waits_for_place)
  SELECT %(process)s, moved.id, c.order_key, moved.depth + 1, c.kind, c.goal, c.phase, c.cursor,
         CASE WHEN c.place < room.places THEN now() END,
         CASE WHEN c.place < room.places THEN now() + make_interval(secs => %(hint_grace)s) END,
         %(child_mode)s::text = 'PARALLEL' AND c.place >= room.places
    FROM moved, room, json_to_recordset(%(children)s::json)
         AS c (order_key bigint[], kind text, goal text, phase text, cursor jsonb, place int)
   ORDER BY c.place
  RETURNING id, turn, due_at)"""

# Right behind the node, whatever its parent's mode: in a sequential one it is this node's turn that has just ended.
_SIBLING = """siblings AS (
  INSERT INTO nodes (process_id, parent_id, order_key, depth, kind, goal, phase, cursor, due_at, next_hint_at)
  SELECT %(process)s, moved.parent_id, s.order_key, moved.depth, s.kind, s.goal, s.phase, s.cursor,
         now(), now() + make_interval(secs => %(hint_grace)s)
    FROM moved, json_to_recordset(%(sibling)s::json)
         AS s (order_key bigint[], kind text, goal text, phase text, cursor jsonb)
  RETURNING id, turn
), pointed AS (
  INSERT INTO artifacts (node_id, key, content)
  SELECT moved.id, 'awaitingUserInputNode', siblings.id::text FROM moved, siblings)"""

# A turn may end in a process that was suspended meanwhile (seen on the row that is locked): what it calls rests too.
_SUB_PROCESSES = """subs AS (
  INSERT INTO processes (id, root_id, parent_node_id, parent_key, tenant, project, owner, engine, recipe_name,
                         priority, trace_context, status)
  SELECT s.id, %(root)s, moved.id, s.key, caller.tenant, caller.project, caller.owner, s.engine, s.recipe_name,
         caller.priority, caller.trace_context, CASE WHEN p.status = 'SUSPENDED' THEN p.status ELSE 'INIT' END
    FROM moved, p, processes caller, json_to_recordset(%(processes)s::json)
         AS s (id uuid, key text, engine text, recipe_name text)
   WHERE caller.id = %(process)s
  RETURNING id, engine, priority)"""

_SUB_INPUTS = """sub_inputs AS (
  INSERT INTO process_inputs (process_id, goal, params, recipe)
  SELECT s.id, s.goal, s.params, s.recipe
    FROM moved, json_to_recordset(%(processes)s::json) AS s (id uuid, goal text, params json, recipe json))"""

_SUB_NODES = """sub_nodes AS (
  INSERT INTO nodes (process_id, kind, goal, phase, cursor, due_at, next_hint_at)
  SELECT s.id, s.node_kind, '', s.phase, s.cursor, now(), now() + make_interval(secs => %(hint_grace)s)
    FROM moved, json_to_recordset(%(processes)s::json) AS s (id uuid, node_kind text, phase text, cursor jsonb)
  RETURNING id, turn, process_id)"""

_FAN_IN = """fan_in AS (
  UPDATE nodes parent
     SET open_children = parent.open_children - 1 + %(new_siblings)s,
         due_at = CASE WHEN parent.open_children + %(new_siblings)s = 1 AND parent.awaiting_post_children THEN now()
                       ELSE parent.due_at END,
         next_hint_at = CASE WHEN parent.open_children + %(new_siblings)s = 1 AND parent.awaiting_post_children
                             THEN now() + make_interval(secs => %(hint_grace)s) ELSE parent.next_hint_at END
    FROM moved WHERE parent.id = moved.parent_id AND parent.open_children > 0
  RETURNING parent.id, parent.turn, parent.due_at)"""

# The next child of a sequential parent takes over the place of this one.
_NEXT_SIBLING = """next_sibling AS (
  UPDATE nodes s SET due_at = now(), next_hint_at = now() + make_interval(secs => %(hint_grace)s)
    FROM fan_in
   WHERE s.id = (SELECT c.id FROM nodes c
                  WHERE c.parent_id = %(parent)s AND c.status = 'PENDING' AND c.due_at IS NULL
                    AND NOT c.waits_for_place
                  ORDER BY c.order_key LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
  RETURNING s.id, s.turn)"""

# The place of a node that settles or parks goes to one that waits for a place, whoever's child it is, unless nodes that
# were woken (they wait for nobody) keep the process at its number. One that another commit has just started is passed
# over, so that two of them start two.
_HAND_ON = f"""handed_on AS (
  UPDATE nodes s SET waits_for_place = false, due_at = now(),
         next_hint_at = now() + make_interval(secs => %(hint_grace)s)
    FROM (SELECT 1 FROM p, moved
           WHERE p.max_parallel > (SELECT count(*) FROM nodes
                  WHERE process_id = %(process)s AND id <> %(node)s AND {WORKING}) {{taken}}) free
   WHERE s.id = (SELECT w.id FROM nodes w WHERE w.process_id = %(process)s AND w.waits_for_place
                  ORDER BY w.depth DESC, w.parent_id, w.order_key LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
  RETURNING s.id, s.turn)"""

_STARTED = "'started', id, turn, NULL, NULL FROM handed_on"
_TAKEN_OVER = """AND NOT EXISTS (SELECT 1 FROM next_sibling)
             AND NOT EXISTS (SELECT 1 FROM fan_in WHERE due_at = now())"""

# The fast path: this node was the last at work. The sweeper finds the other cases (``store.inbox.block_waiting``).
_ONLY_PEOPLE = f"""{only_people("%(process)s", but="%(node)s")}
    AND NOT EXISTS (SELECT 1 FROM handed_on)"""
_ASKER_BLOCKS = f"""status = CASE WHEN status = 'RUNNING' AND %(delay)s::float8 IS NULL AND {_ONLY_PEOPLE}
  THEN 'BLOCKED' ELSE status END"""
_LAST_BLOCKS = f"""{_ONLY_PEOPLE}
    {_TAKEN_OVER} AND EXISTS (SELECT 1 FROM inbox_items WHERE process_id = %(process)s AND status = 'PENDING')"""
# Several may hold the process shared at this point: never wait for them, one of the others or the sweeper does it.
_BLOCKED = f"""blocked AS (
  UPDATE processes SET status = 'BLOCKED' FROM moved WHERE processes.id = (
    SELECT id FROM processes WHERE id = %(process)s AND status = 'RUNNING' AND {_LAST_BLOCKS}
       FOR NO KEY UPDATE SKIP LOCKED))"""

_RESULT = """result AS (
  INSERT INTO results (process_id, wrapper) SELECT %(process)s, %(result)s::json FROM moved
  RETURNING process_id, wrapper)"""
_TELL = told_of_closing("result", close_reason="%(close_reason)s::text", closed_at="now()")

_WAKE_CALLER = """woken AS (
  UPDATE nodes caller
     SET open_calls = caller.open_calls - 1,
         due_at = CASE WHEN caller.open_calls = 1 AND caller.status = 'WAITING' THEN now() ELSE caller.due_at END,
         next_hint_at = CASE WHEN caller.open_calls = 1 AND caller.status = 'WAITING'
                             THEN now() + make_interval(secs => %(hint_grace)s) ELSE caller.next_hint_at END
    FROM moved, processes owner
   WHERE caller.id = %(caller)s AND owner.id = caller.process_id AND caller.open_calls > 0
  RETURNING caller.id, caller.turn, caller.due_at, owner.engine, owner.priority::int)"""

_SETTLE_BUDGET = """used_calls = used_calls + %(spent_calls)s, used_tokens = used_tokens + %(spent_tokens)s,
  used_cost_usd = used_cost_usd + %(spent_cost)s::numeric,
  reserved_calls = greatest(reserved_calls - %(reserved_calls)s, 0),
  reserved_tokens = greatest(reserved_tokens - %(reserved_tokens)s, 0),
  reserved_cost_usd = greatest(reserved_cost_usd - %(reserved_cost)s::numeric, 0)"""


@lru_cache(maxsize=256)
def statement(shape: Shape) -> str:
    """The commit of this shape; see ``models.store.commit`` for its parameters."""
    exclusive = shape.closes or shape.children or shape.sibling or shape.asks or (shape.counted and shape.is_root)
    parts = []
    source = "processes"
    if shape.shares_rows:
        parts.append("relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))")
        source = "processes, relaxed"
    if shape.counted and not shape.is_root:
        parts.append("root AS MATERIALIZED (SELECT id FROM processes WHERE id = %(root)s FOR NO KEY UPDATE)")
        source = "processes, relaxed, root"
    # Looked at again under the lock, so no two nodes take the same room.
    grows = shape.children or shape.sibling
    most = "coalesce(%(max_nodes)s, 2147483647)"
    room = f" AND node_count + %(new_children)s + %(new_siblings)s <= {most}" if grows else ""
    parts.append(
        f"""p AS MATERIALIZED (
  SELECT processes.id, status, max_parallel, fan_outs
    FROM {source} WHERE processes.id = %(process)s AND status <> 'CLOSED'{room}
     FOR {"NO KEY UPDATE" if exclusive else "SHARE"} OF processes)"""
    )
    parts.append(_MOVED.format(**(_KEEPING if shape.keeps else _LETTING_GO)))
    parts.append(_PHASE_RECORD)
    plain = (
        (shape.messages, _MESSAGES),
        (shape.artifacts, _ARTIFACTS),
        (shape.documents, _DOCUMENTS),
        (shape.model, _MODEL),
        (shape.ledger, _LEDGER),
        (shape.asks, ASK),
        (shape.withdraws, WITHDRAW),
    )
    parts += [part for wanted, part in plain if wanted]
    # A node that goes on starts, wakes and calls nobody: its own turn is the only row then.
    due = [_NEXT_TURN if shape.keeps else _OWN]
    if shape.children:
        parts += [_ROOM, _CHILDREN]
        due.append("SELECT 'child', id, turn, NULL, NULL FROM children WHERE due_at IS NOT NULL")
    if shape.processes:
        parts += [_SUB_PROCESSES, _SUB_INPUTS, _SUB_NODES]
        due.append(
            "SELECT 'process', n.id, n.turn, s.engine, s.priority FROM sub_nodes n JOIN subs s ON s.id = n.process_id"
        )
    for part, woken in _successors(shape):
        parts.append(part)
        due.append(f"SELECT {woken}")
    if shape.closes:
        parts.append(_RESULT)
        if shape.has_caller:
            parts.append(_WAKE_CALLER)
            due.append("SELECT 'caller', id, turn, engine, priority FROM woken WHERE due_at = now()")
        else:
            parts.append(_TELL)
    sets = _process_sets(shape)
    if shape.may_block and not sets:
        parts.append(_BLOCKED)
    elif shape.may_block:
        # Never twice in one statement: the second write of a row would be lost.
        sets.append(f"status = CASE WHEN status = 'RUNNING' AND {_LAST_BLOCKS} THEN 'BLOCKED' ELSE status END")
    if sets:
        parts.append(
            f"process_moved AS (UPDATE processes SET {', '.join(sets)} FROM moved WHERE processes.id = %(process)s)"
        )
    if shape.counted and not shape.is_root:
        parts.append(f"budget AS (UPDATE processes SET {_SETTLE_BUDGET} FROM moved WHERE processes.id = %(root)s)")
    return "WITH " + ",\n".join(parts) + "\n" + "\nUNION ALL ".join(due)


def _successors(shape: Shape) -> Iterator[tuple[str, str]]:
    """Who goes on when the node settles or parks: the part that makes it due, and the row it yields."""
    if shape.settles and shape.has_parent:
        yield _FAN_IN, "'parent', id, turn, NULL, NULL FROM fan_in WHERE due_at = now()"
        if shape.sibling:
            yield _SIBLING, "'sibling', id, turn, NULL, NULL FROM siblings"
        else:
            yield _NEXT_SIBLING, "'sibling', id, turn, NULL, NULL FROM next_sibling"
            yield _HAND_ON.format(taken=_TAKEN_OVER), _STARTED
    elif shape.parks:
        yield _HAND_ON.format(taken=""), _STARTED


def _process_sets(shape: Shape) -> list[str]:
    """What the commit changes of its own process, but for the status when only people are left."""
    sets = []
    if shape.children or shape.sibling:
        sets.append("node_count = node_count + %(new_children)s + %(new_siblings)s")
    if shape.children:
        # Sequential children take over the place of their parent, one at a time.
        sets.append("max_parallel = coalesce(%(width)s::int, max_parallel)")
        sets.append("fan_outs = fan_outs + (%(child_mode)s::text = 'PARALLEL')::int")
    if shape.asks and shape.parks:
        sets.append(_ASKER_BLOCKS)
    if shape.closes:
        sets.append("status = 'CLOSED', close_reason = %(close_reason)s, closed_at = now()")
        # A sub-process's result is read by its caller's next turn; nobody else waits for it.
        sets.append("delivered_at = CASE WHEN parent_node_id IS NULL THEN NULL ELSE now() END")
    if shape.counted and shape.is_root:
        sets.append(_SETTLE_BUDGET)
    return sets
