"""`sentence-transformers` behind FastAPI, as its users write it."""

import os

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

from tests.benchmarks.checkpoint import full_length_checkpoint

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
model = SentenceTransformer(str(full_length_checkpoint()), device="cpu")
app = FastAPI()


class EmbedRequest(BaseModel):
    inputs: str


@app.post("/embed")
def embed(request: EmbedRequest) -> list[list[float]]:
    """In FastAPI's thread pool."""
    found: list[list[float]] = model.encode([request.inputs], show_progress_bar=False).tolist()
    return found


@app.get("/health")
def health() -> str:
    """Up once the model is loaded."""
    return "ok"
