-- The attestation key by which the registration last quoted; a pin, or a token's word, may come before it is signed.
-- Empty: it had no quote. NULL: it is from before this was kept, and was judged when it came.
ALTER TABLE registration ADD COLUMN attestation_key TEXT;
