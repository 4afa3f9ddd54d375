-- +goose Up
CREATE TABLE shop (id INT PRIMARY KEY, name TEXT NOT NULL);
