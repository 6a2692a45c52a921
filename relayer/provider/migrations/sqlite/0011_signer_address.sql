-- The account of a signing key's state: a key's name may come to stand for another key. Null: from before this was kept.
ALTER TABLE signer ADD COLUMN address TEXT;
