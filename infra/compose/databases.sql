-- Postgres runs this once, when its volume is new. The lake's catalog is in the database `pairmill`.
CREATE DATABASE prefect;
