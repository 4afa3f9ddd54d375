# The command, a list of certificate authorities, and nothing else: no shell, no root.
#
#   docker build --tag fencelock .
#   docker run --rm --env FENCELOCK_URL=redis://redis.example:6379 fencelock ls
#
# To run a program under a lock, copy the command into the program's image:
#
#   COPY --from=fencelock /fencelock /usr/local/bin/
#   ENTRYPOINT ["fencelock", "run", "nightly", "--", "/app/report"]
FROM golang:1.26 AS build
WORKDIR /source
COPY . .
RUN CGO_ENABLED=0 go build -C cmd/fencelock -trimpath -tags grpcnotrace -ldflags '-s -w' -o /fencelock .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /fencelock /fencelock
USER 65532:65532
ENTRYPOINT ["/fencelock"]
