"""The parts of a commit that ask a person and take a question back."""

from __future__ import annotations

from typing import Final

from models.store.outbox_sql import ITEM, told_of_items

ASK: Final = f"""asked AS (
  INSERT INTO inbox_items AS i (tenant, project, process_id, node_id, originator, tags, type, criticality, title,
                                body, payload, owner,
                                expires_at, status, answer, answered_by, resolved_by, answered_at)
  SELECT owner.tenant, owner.project, owner.id, moved.id, %(question_originator)s, %(question_tags)s::text[],
         %(question_type)s, %(question_criticality)s,
         %(question_title)s, %(question_body)s, %(question_payload)s::json, %(question_owner)s::text,
         now() + make_interval(secs => %(question_ttl)s),
         CASE WHEN %(question_answer)s::jsonb IS NULL THEN 'PENDING' ELSE 'ANSWERED' END, %(question_answer)s::jsonb,
         %(question_answered_by)s::text,
         CASE WHEN %(question_answer)s::jsonb IS NOT NULL THEN 'AUTO_DEFAULT' END,
         CASE WHEN %(question_answer)s::jsonb IS NOT NULL THEN now() END
    FROM moved, processes owner WHERE owner.id = %(process)s
  RETURNING {ITEM}
), {told_of_items("asked")}"""

WITHDRAW: Final = f"""withdrawn AS (
  UPDATE inbox_items i SET status = 'EXPIRED', resolved_by = 'EXPIRY', answered_at = now()
    FROM moved WHERE i.node_id = moved.id AND i.status = 'PENDING'
  RETURNING {ITEM}
), {told_of_items("withdrawn")}"""
