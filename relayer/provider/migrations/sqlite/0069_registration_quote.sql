-- The attestation key by which the registration last quoted; a pin, or a token's word, may come before it is signed.
ALTER TABLE registration ADD COLUMN attestation_key TEXT;
