-- In which block a transaction is: asked of each that brought heartbeats on chain.
CREATE INDEX batch_included ON batch (hash) WHERE ended = 'included';
