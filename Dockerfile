# The service with the default checkpoint inside. It runs as any user, on a read-only root with a tmpfs on /tmp, and
# without network. torch is what pip's index offers, on Linux x86-64 the CUDA build; the much smaller CPU build
# comes with --build-arg PIP_EXTRA_INDEX_URL=ADDRESS, the index of CPU wheels that the selector on pytorch.org shows.

FROM python:3.11-slim-bookworm AS requirements
# Extras of the package, separated by spaces: otel for traces.
ARG EXTRAS
WORKDIR /build
COPY pyproject.toml .
RUN python -c "import os, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['dependencies'], *(line for extra in os.getenv('EXTRAS', '').split() for line in project['optional-dependencies'][extra]), sep='\n')" \
    > requirements.txt


# Knows nothing of the code, so that a change of it does not install torch again.
FROM python:3.11-slim-bookworm AS dependencies
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
WORKDIR /build
RUN python -m venv --without-pip /opt/venv
COPY constraints.txt .
COPY --from=requirements /build/requirements.txt .
# torch's C++ headers and tests are of no use without a compiler.
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/venv/bin/python install --constraint constraints.txt --requirement requirements.txt \
    && rm -rf /opt/venv/lib/python3.11/site-packages/torch/include \
              /opt/venv/lib/python3.11/site-packages/torch/test \
              /opt/venv/lib/python3.11/site-packages/torch/bin/test_*


FROM python:3.11-slim-bookworm AS package
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
WORKDIR /build
# For the kernels in bert_core/*.c; the image itself has no compiler.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY bert_core bert_core
COPY service service
RUN --mount=type=cache,target=/root/.cache/pip \
    pip wheel --no-deps --wheel-dir /wheels . && python -m zipfile --list /wheels/*.whl | grep _tiles


FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="bert-service" \
      org.opencontainers.image.description="BERT behind one port: fill-mask, next-sentence and embeddings" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
WORKDIR /app
COPY --from=dependencies /opt/venv /opt/venv
COPY weights/minilm-l6-bert-en weights/minilm-l6-bert-en
RUN --mount=type=bind,from=package,source=/wheels,target=/wheels \
    /usr/local/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-index --no-deps /wheels/*.whl

USER 10001:0
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import http.client, os, ssl; place = '127.0.0.1', int(os.getenv('PORT') or 8000); connection = http.client.HTTPSConnection(*place, timeout=4, context=ssl._create_unverified_context()) if os.getenv('SSL_CERTFILE') else http.client.HTTPConnection(*place, timeout=4); connection.request('GET', '/health/ready'); raise SystemExit(connection.getresponse().status != 200)"]
ENTRYPOINT ["bert-service"]
CMD ["serve"]
