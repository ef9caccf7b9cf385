"""The `transformers` next-sentence model called once per request, behind FastAPI, as its users write it."""

import os

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoTokenizer, BertForNextSentencePrediction

from tests.benchmarks.checkpoint import full_length_checkpoint

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
tokenizer = AutoTokenizer.from_pretrained(full_length_checkpoint())
model = BertForNextSentencePrediction.from_pretrained(full_length_checkpoint(), dtype=torch.float32).eval()
app = FastAPI()


class Pair(BaseModel):
    text: str
    text_pair: str


class NextSentenceRequest(BaseModel):
    inputs: Pair


@app.post("/next-sentence")
def next_sentence(request: NextSentenceRequest) -> list[float]:
    """In FastAPI's thread pool."""
    encoded = tokenizer(request.inputs.text, request.inputs.text_pair, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        found: list[float] = model(**encoded).logits.softmax(-1)[0].tolist()
    return found


@app.get("/health")
def health() -> str:
    """Up once the model is loaded."""
    return "ok"
