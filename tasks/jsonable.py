"""Stored values as JSON has them. Standard library only, so that any face may use it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID


def dump(value: object) -> str:
    """JSON text for people and other programs: times in ISO form, money as numbers."""
    return json.dumps(jsonable(value), ensure_ascii=False)


def jsonable(value: Any) -> Any:
    """``value`` with ids, times and decimals as JSON has them."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value
