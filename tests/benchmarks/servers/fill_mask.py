"""The `transformers` fill-mask pipeline behind FastAPI, as its users write it."""

import os
from typing import Any

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

from tests.benchmarks.checkpoint import full_length_checkpoint

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
fill = pipeline("fill-mask", model=str(full_length_checkpoint()), device="cpu", dtype=torch.float32)
app = FastAPI()


class FillMaskRequest(BaseModel):
    inputs: str


@app.post("/fill-mask")
def fill_mask(request: FillMaskRequest) -> list[dict[str, Any]]:
    """In FastAPI's thread pool."""
    found: list[dict[str, Any]] = fill(request.inputs, tokenizer_kwargs={"truncation": True})
    return found


@app.get("/health")
def health() -> str:
    """Up once the model is loaded."""
    return "ok"
