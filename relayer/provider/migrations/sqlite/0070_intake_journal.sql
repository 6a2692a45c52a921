-- The newest group of the journal beside the database that the database holds; a start takes in those above it.
CREATE TABLE intake_journal (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    applied INTEGER NOT NULL
) STRICT;
