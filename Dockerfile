# docker build --tag yamame .
# docker run --rm --volume "$PWD/runs:/app/runs" yamame train passive-tmaze
# On a GPU: docker run --rm --gpus all …
FROM python:3.12-slim

# Extras to install, such as --build-arg EXTRAS=view,minigrid
ARG EXTRAS=
# With --build-arg TORCH_INDEX=URL, PyTorch comes from an index of builds without CUDA, which are a tenth of the size
ARG TORCH_INDEX=

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

WORKDIR /source
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY yamame yamame
RUN pip install --constraint constraints.txt ".${EXTRAS:+[$EXTRAS]}"

RUN useradd --create-home --uid 1000 yamame && mkdir -p /app/runs && chown -R yamame /app
USER yamame
WORKDIR /app
ENTRYPOINT ["yamame"]
CMD ["recipes"]
