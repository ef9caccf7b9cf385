from __future__ import annotations

import pytest

from service.observability.request_record import RequestWork
from service.tasks import Answer, DecodeResult, PassRecord, Timing

FIRST = PassRecord(items=1, tokens=5, started=7.0, finished=7.5)
SECOND = PassRecord(items=2, tokens=9, started=8.0, finished=8.25)


@pytest.mark.parametrize(
    ("passes", "queue_seconds", "admitted"), [((), 0.0, 6.75), ((FIRST,), 0.125, 6.875), ((FIRST, SECOND), 3.0, 6.5)]
)
def test_work_with_no_pass_one_or_several(
    passes: tuple[PassRecord, ...], queue_seconds: float, admitted: float
) -> None:
    timing = Timing(tokenization=0.25, queue=queue_seconds, inference=0.75)
    answer = Answer(result=DecodeResult(text="a"), timing=timing, compute_tokens=7, passes=passes)
    work = RequestWork(submitted=6.5, timing=timing, answers=[answer, answer])
    assert work.admitted == admitted
    assert work.passes == list(passes)
    assert work.compute_tokens == 14
