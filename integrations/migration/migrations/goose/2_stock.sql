-- +goose Up
CREATE TABLE stock (shop INT PRIMARY KEY, pieces INT NOT NULL);
INSERT INTO stock SELECT shop, 100 FROM generate_series(1, 3) AS shop;

-- A long migration: it takes until the story opens its gate.
SELECT pg_advisory_xact_lock(1);
