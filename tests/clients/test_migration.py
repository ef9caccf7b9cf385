"""The README's tables of how to move here: every call in the column "here" works as it stands there."""

from __future__ import annotations

import gc
import json
import re
import shlex
import subprocess
import warnings
from argparse import ArgumentParser

import httpx
import pytest
import tei_client
from huggingface_hub import InferenceClient
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from openai import OpenAI

from service.settings import add_flags, load_settings
from tests.live_server import LiveServer
from tests.readme import README

SECTION = README.read_text(encoding="utf-8").partition("\n## Move from …\n")[2].partition("\n## ")[0]
CALLS = re.findall(r"^\| [^|]+ \| `([^|]+)` \|", SECTION, re.MULTILINE)
PYTHON = {
    "tei_client": tei_client,
    **{
        client.__name__: client
        for client in (
            HuggingFaceEndpointEmbeddings, InferenceClient, OpenAI, OpenAIEmbeddings, TextEmbeddingsInference
        )
    },
}  # fmt: skip


def test_every_table_is_found() -> None:
    assert SECTION.count("| there | here | what differs |") == 4
    rows = [line for line in SECTION.splitlines() if line.startswith("| `")]
    assert len(CALLS) == len(rows) - 1  # one has nothing here


def length_of(expression: str) -> int:
    """Of the answer to a call by a client that nobody closes: its sockets go here, and not in the midst of a test."""
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        answer = eval(expression, PYTHON)
        length = len(getattr(answer, "data", answer))
        del answer
        gc.collect()
    return length


@pytest.mark.parametrize("call", CALLS)
def test_the_call_works(server: LiveServer, call: str) -> None:
    command, _, rest = call.partition(" ")
    match command:
        case "bert-service":
            parser = ArgumentParser()
            add_flags(parser)
            assert load_settings(vars(parser.parse_args(shlex.split(rest)[1:]))).model_fields_set
        case "curl":
            arguments = shlex.split(rest.replace("http://localhost:8000", server.url))
            done = subprocess.run(["curl", "--fail", "--silent", *arguments], capture_output=True, check=True)
            assert json.loads(done.stdout)["data"]
        case "GET" | "POST":
            path, _, body = rest.partition(" ")
            answer = httpx.request(command, server.url + path, json=json.loads(body) if body else None)
            assert answer.raise_for_status().json()
        case _:
            assert length_of(call.replace("http://localhost:8000", server.url)) > 0
