"""Signatures of webhooks, made here and checked by the client, after the Standard Webhooks specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from models.store.webhooks import new_secret
from tasks.webhooks.signing import headers_of

CLIENT = Path(__file__).resolve().parents[3] / "tasks" / "client"
KEY = bytes(range(24))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
BODY = '{"type":"process.closed","data":{"title":"Grüße"}}'.encode()
NOW = 1_700_000_000


@pytest.fixture
def vancetope(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CLIENT))
    return importlib.import_module("vancetope_client")


def signed(*secrets: str, body: bytes = BODY, at: int = NOW) -> dict[str, str]:
    return headers_of("evt_1", at, body, secrets or (SECRET,))


def verified(vancetope: Any, headers: dict[str, str], body: bytes | str = BODY, **options: Any) -> Any:
    return vancetope.verify_webhook(
        options.pop("secret", SECRET), headers, body, now=options.pop("now", NOW), **options
    )


# By openssl: `printf 'evt_0c1d.1700000000.{"n": 1}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0001…17`.
VECTOR = "v1,cMwT1s+QhcK6IOwNrsk7H1pncG0ot5zsqS/8sF/jBgQ="


def test_the_signature_is_that_of_the_specification() -> None:
    expected = base64.b64encode(hmac.new(KEY, b"evt_1.1700000000." + BODY, hashlib.sha256).digest()).decode()
    assert signed() == {
        "webhook-id": "evt_1", "webhook-timestamp": "1700000000", "webhook-signature": f"v1,{expected}",
    }  # fmt: skip
    assert headers_of("evt_0c1d", NOW, b'{"n": 1}', [SECRET])["webhook-signature"] == VECTOR


def test_after_a_rotation_both_secrets_sign_the_new_one_first() -> None:
    old, new = new_secret(), new_secret()
    both = signed(new, old)["webhook-signature"].split(" ")
    assert both == [signed(new)["webhook-signature"], signed(old)["webhook-signature"]]


def test_a_new_secret_is_random_and_long_enough() -> None:
    made = {new_secret() for _ in range(50)}
    assert len(made) == 50
    assert {len(base64.b64decode(each.removeprefix("whsec_"), validate=True)) for each in made} == {32}


@pytest.mark.parametrize("secret", ["", "whsec_!!", "secret", base64.b64encode(KEY).decode()])
def test_what_is_no_secret_signs_nothing(secret: str) -> None:
    with pytest.raises(ValueError, match=r"whsec_|base64|alphabet|Non-base64"):
        signed(secret)


def test_what_we_sign_the_client_takes(vancetope: Any) -> None:
    assert verified(vancetope, signed()) == json.loads(BODY)
    assert verified(vancetope, signed(), BODY.decode()) == json.loads(BODY)
    old, new = new_secret(), new_secret()
    for secret in (old, new):
        assert verified(vancetope, signed(new, old), secret=secret)
    shouted = {name.upper(): value for name, value in signed().items()}
    assert verified(vancetope, shouted)
    # Other schemes beside ours (v1a) are passed over.
    mixed = signed()
    mixed["webhook-signature"] = "v1a,AAAA " + mixed["webhook-signature"]
    assert verified(vancetope, mixed)


@pytest.mark.parametrize("drift", [-299, 299])
def test_a_clock_may_be_a_little_off(vancetope: Any, drift: int) -> None:
    assert verified(vancetope, signed(at=NOW + drift))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"webhook-id": "evt_2"}, "signature"),
        ({"webhook-timestamp": str(NOW + 1)}, "signature"),
        ({"webhook-signature": "v1,AAAA"}, "signature"),
        ({"webhook-signature": "v1"}, "signature"),
        ({"webhook-signature": "v1,ß"}, "signature"),
        ({"webhook-signature": ""}, "signature"),
        ({"webhook-timestamp": "yesterday"}, "webhook-timestamp"),
        ({"webhook-id": None}, "webhook-id"),
        ({"webhook-signature": None}, "webhook-signature"),
    ],
)
def test_whatever_is_changed_is_refused(vancetope: Any, change: dict[str, str | None], why: str) -> None:
    headers = {name: value for name, value in (signed() | change).items() if value is not None}
    with pytest.raises(vancetope.WebhookRefused, match=why):
        verified(vancetope, headers)


@pytest.mark.parametrize(("drift", "why"), [(-301, "301 s old"), (301, "301 s ahead")])
def test_what_was_signed_long_ago_or_in_the_future_is_refused(vancetope: Any, drift: int, why: str) -> None:
    with pytest.raises(vancetope.WebhookRefused, match=why):
        verified(vancetope, signed(at=NOW + drift))
    assert verified(vancetope, signed(at=NOW + drift), tolerance=400)


def test_another_body_and_another_secret_are_refused(vancetope: Any) -> None:
    with pytest.raises(vancetope.WebhookRefused, match="signature"):
        verified(vancetope, signed(), BODY + b" ")
    with pytest.raises(vancetope.WebhookRefused, match="signature"):
        verified(vancetope, signed(), secret=new_secret())
    with pytest.raises(vancetope.WebhookRefused, match="no JSON object"):
        verified(vancetope, signed(body=b"[1]"), b"[1]")
    with pytest.raises(ValueError, match="whsec_"):
        verified(vancetope, signed(), secret="secret")
    assert issubclass(vancetope.WebhookRefused, vancetope.ClientError)
