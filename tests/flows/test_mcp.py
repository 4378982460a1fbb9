"""`pairmill mcp`: the SDK's own client asks over stdio, and nothing that it sends changes or leaves the lake."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.agents import mcp_server
from pairmill.flows.agents.mcp_server import instructions
from tests.worlds.line import rows

QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("status", {}),
    ("funnel", {"dataset": "demo"}),
    ("sample", {"dataset": "demo@1", "n": 2}),
    ("sql", {"query": "SELECT range AS n FROM range(300)"}),
    ("sql", {"query": "SELECT image_id FROM pairs ORDER BY ALL LIMIT 1"}),
    ("sql", {"query": "SELECT repeat('x', 1900) AS a, repeat('ü', 1900) AS b FROM range(300)"}),
    ("why", {"item": "nothing"}),
    ("sample", {"dataset": "demo", "n": 51}),
]
ATTACKS = [
    "DELETE FROM pairs",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "SELECT * FROM read_text('{folder}/secret.txt')",
    "SELECT * FROM '{folder}/secret.csv'",
    "ATTACH '{folder}/new.db' AS other",
    "SELECT * FROM sqlite_scan('{lake}/catalog.sqlite', 'pairmill_lease')",
    "SELECT * FROM read_csv('https://example.org/list.csv')",
    "SET enable_external_access = true",
    "INSTALL spatial",
    "SELECT getenv('HOME')",
]


async def asked(lake: Path, calls: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], list[tuple[bool, str]]]:
    """Start the server, make the calls one by one; return its tools and (is an error, text) of each answer."""
    from mcp import ClientSession, StdioServerParameters, stdio_client  # 0.8 CPU s

    command = StdioServerParameters(command=sys.executable, args=["-m", "pairmill", "mcp", "--lake", str(lake)])
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        begun = await session.initialize()
        assert begun.instructions == instructions()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        answers = []
        for name, arguments in calls:
            found = await session.call_tool(name, arguments)
            answers.append((bool(found.is_error), "".join(getattr(part, "text", "") for part in found.content)))
        return tools, answers


@pytest.mark.slow
def test_an_agent_asks_and_cannot_read_or_write_anything_else(curated: Path, tmp_path: Path):
    (tmp_path / "secret.txt").write_text("a secret")
    (tmp_path / "secret.csv").write_text("a,b\n1,secret\n")
    attacks = [("sql", {"query": text.format(folder=tmp_path, lake=curated)}) for text in ATTACKS]
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    tools, answers = asyncio.run(asked(curated, QUESTIONS + attacks))

    assert sorted(tools) == [
        "datasets",
        "diff",
        "funnel",
        "proofs",
        "quarantine",
        "sample",
        "sql",
        "status",
        "why",
    ]
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    status, funnel, sample, many, image, wide, unknown, too_many = answers[: len(QUESTIONS)]
    assert json.loads(status[1])["datasets"][0]["dataset"] == "demo@1"
    assert json.loads(funnel[1])["rows"][0].keys() == {"kind", "rule", "n_in", "n_dropped"}
    assert len(json.loads(sample[1])["rows"]) == 2
    assert len(json.loads(many[1])["rows"]) == 200 and json.loads(many[1])["more"]
    assert json.loads(image[1])["rows"] == [list(rows(curated, QUESTIONS[4][1]["query"])[0])]
    assert 90_000 < len(wide[1]) < 110_000 and json.loads(wide[1])["more"]
    assert unknown[0] and "knows no 'nothing'" in unknown[1]
    assert too_many[0] and "ask for 1 to 50 pairs" in too_many[1]

    for (_, call), (refused, text) in zip(attacks, answers[len(QUESTIONS) :], strict=True):
        assert refused and "secret" not in text.replace("secret.", "") and "--" not in text, (call, text)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_a_statement_that_takes_long_is_stopped(curated: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_server, "SECONDS", 0.5)
    with pytest.raises(PairmillError, match=r"stopped after 0\.5 s; ask for less"):
        query = "SELECT sum(sqrt(a.range * b.range)) FROM range(10000000) a, range(9999999) b"
        mcp_server.lake_tools(str(curated))["sql"](query=query)


def test_an_object_beyond_the_limit_has_shorter_lists_and_says_so():
    whole = mcp_server._object({"images": [{"url": "x" * 1500}] * 40})
    cut = mcp_server._object({"images": [{"url": "x" * 1500, "texts": ["y" * 1500] * 4}] * 400})
    assert len(whole["images"]) == 40 and "more" not in whole
    assert 1 < len(cut["images"]) < 200 and cut["more"] and len(json.dumps(cut)) <= mcp_server.ANSWER


def test_the_instructions_name_every_table():
    text = instructions()
    assert len(text) < 11_500  # 2,600 tokens, which every conversation pays
    assert "- pairs(dataset, version, image_id" in text


@pytest.mark.parametrize(("missing", "instead"), [
    ("mcp.server", None), ("mcp_types", None), ("mcp.server", ModuleType("without MCPServer")),  # mcp 1
])  # fmt: skip
def test_a_missing_extra_is_a_line(
    missing: str, instead: ModuleType | None, monkeypatch: pytest.MonkeyPatch, curated: Path, capsys
):
    from pairmill.flows.command.cli import main

    monkeypatch.setitem(sys.modules, missing, instead)
    assert main(["mcp", "--lake", str(curated)]) == 1
    assert "needs the extra [mcp]: pip install 'pairmill[mcp]'" in capsys.readouterr().err


def test_a_line_that_is_no_request_gets_an_error_and_the_next_request_its_answer(curated: Path):
    lines = [b"{bad", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": 1}', b"[]"]
    asked = b"\n".join([*lines, b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}', b""])
    command = [sys.executable, "-m", "pairmill", "mcp", "--lake", str(curated)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        server.stdin.write(asked)
        server.stdin.flush()
        *errors, pong = (json.loads(server.stdout.readline()) for _ in range(len(lines) + 1))
        server.stdin.close()
    assert [(each["id"], each["error"]["code"]) for each in errors] == [(None, -32700)] * 3 + [(None, -32600)] * 2
    assert pong == {"jsonrpc": "2.0", "id": 2, "result": {}} and server.returncode == 0
