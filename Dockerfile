# The image of a Beam worker with Clearspan's pipelines installed: see docs/runners.md.
#   docker build -t REGION-docker.pkg.dev/PROJECT/REPOSITORY/clearspan:0.1.0 .
# Beam's and Python's versions must be those of the machine that launches the job.
FROM apache/beam_python3.11_sdk:2.77.0

# Without it, each worker process first makes a virtual environment of its own.
ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
WORKDIR /clearspan
COPY constraints.txt setup.py README.md ./
COPY clearspan clearspan
COPY pipelines pipelines
COPY common common
COPY shards shards
COPY plugins plugins

# The package without its training dependencies (torch, DeepSpeed), and what its workers import: the extra `worker`, and
# those of web archives and of languages.
RUN pip install --no-cache-dir --no-deps . \
    && python -c "from importlib.metadata import requires; \
          extras = ('worker', 'web', 'language'); \
          print(*(r.split(';')[0] for r in requires('clearspan') if r.rpartition(' ')[2][1:-1] in extras), sep='\n')" \
       > worker.txt \
    && pip install --no-cache-dir -c constraints.txt "apache-beam[gcp]" -r worker.txt \
    && python -c "import clearspan.pipelines.execution.graph, transformers.audio_utils; \
          import clearspan.pipelines.builders.documents, clearspan.pipelines.builders.sentences, clearspan.pipelines.builders.triplets; \
          import clearspan.pipelines.builders.pairs, clearspan.pipelines.builders.images, clearspan.pipelines.builders.audio, clearspan.pipelines.builders.vectors"
