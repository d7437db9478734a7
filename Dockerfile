# The service and the command. Ollama stays on the host, with its models: see compose.yaml.
FROM python:3.12-slim-bookworm

RUN useradd --create-home --uid 10001 tipbench && install -d -o tipbench -g tipbench /data
WORKDIR /opt/tipbench
COPY requirements/run.txt requirements/run.txt
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

USER 10001
ENV TIPBENCH_HOME=/data
VOLUME /data
EXPOSE 8700
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8700/health')"]
ENTRYPOINT ["tipbench"]
CMD ["serve", "--host", "0.0.0.0", "--expose-to-the-network"]
