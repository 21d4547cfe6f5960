# coli in a container: `docker build -t coli .`, then `docker compose up` (compose.yaml).
# Each stage is one script, so that the same steps run without Docker: packaging/in-bare-debian.

FROM node:22-bookworm-slim AS web
COPY web /src/web
COPY scripts/web /src/scripts/web
RUN /src/scripts/web build

FROM debian:bookworm-slim AS build
COPY . /src
COPY --from=web /src/web/dist /src/web/dist
RUN /src/packaging/install build

FROM debian:bookworm-slim
COPY packaging/install /src/packaging/install
RUN /src/packaging/install run && rm -rf /src
COPY --from=build /opt/coli /opt/coli
ENV PATH=/opt/coli/bin:/usr/bin:/bin XDG_DATA_HOME=/var/lib/coli
USER coli
WORKDIR /var/lib/coli
VOLUME /var/lib/coli
EXPOSE 8000
STOPSIGNAL SIGTERM
ENTRYPOINT ["coli"]
# Reachable from outside, so it wants a key: COLI_API_KEY or COLI_API_KEY_FILE.
CMD ["serve", "--host", "0.0.0.0", "--plain"]
