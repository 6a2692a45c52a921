//! The machine's driver in memory.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{SendError, SendOptions, Sent};
use crate::code::{self, Class, Verdict};
use crate::hash::TxHash;
use crate::keys::Signer;
use crate::query::Chain;
use crate::settle::{
    self, Action, Alarm, BatchId, CheckTx, Condition, End, Inclusion, Input, Phase, SignRequest, SignedTx,
    State, io,
};
use crate::tx::{self, SignerData, Unsigned};

pub(super) struct Sender<'a> {
    chain: &'a Chain,
    key: &'a dyn Signer,
    options: &'a SendOptions,
    address: String,
    draft: Unsigned,
    state: State,
    /// The last refusal by an endpoint.
    refusal: Option<SendError>,
    /// Whether some endpoint may hold the bytes.
    taken: bool,
    /// The block that has it and whose results no endpoint keeps.
    untold: Option<u64>,
}

/// Between two looks at the chain.
const PAUSE: Duration = Duration::from_millis(300);
/// The machine's name for the one batch.
const ONLY: BatchId = BatchId(0);

impl<'a> Sender<'a> {
    pub(super) fn new(
        chain: &'a Chain,
        key: &'a dyn Signer,
        options: &'a SendOptions,
        address: String,
        draft: Unsigned,
    ) -> Self {
        Self {
            chain,
            key,
            options,
            address,
            draft,
            state: State::default(),
            refusal: None,
            taken: false,
            untold: None,
        }
    }

    pub(super) async fn run(&mut self) -> Result<Sent, SendError> {
        let config = settle::Config::default();
        let mut inbox: Vec<Input> = Vec::new();
        inbox.extend(io::older_head(self.chain).await);
        inbox.extend(io::heads(self.chain, &self.options.chain_id).await);
        inbox.push(Input::Submit { batch: ONLY });
        loop {
            for input in std::mem::take(&mut inbox) {
                if let Input::Scanned { gone, .. } = &input {
                    self.untold = gone.first().copied();
                }
                for action in settle::step(&mut self.state, &config, now_ms(), input) {
                    match action {
                        Action::Sign(request) => inbox.push(Input::Signed(self.sign(request).await?)),
                        // Provably dead, so its sequence is free: sign it anew while there is time.
                        Action::Finished {
                            end: End::Expired { .. },
                            ..
                        } if self.refusal.is_none() => {
                            self.taken = false;
                            inbox.push(Input::Settled { batch: ONLY });
                            inbox.push(Input::Submit { batch: ONLY });
                        }
                        Action::Finished { end, .. } => return self.ended(end).await,
                        Action::QueryNodeSequences { overtaken, .. } => return Err(self.consumed(overtaken)),
                        Action::Alarm(alarm) => self.alarm(alarm)?,
                        other => {
                            let answers = io::perform(self.chain, &self.address, &self.state, &other).await;
                            self.taken |= answers.iter().any(may_be_taken);
                            inbox.extend(answers);
                        }
                    }
                }
            }
            // A refusal is told at once if no endpoint may have taken the bytes: they are nowhere.
            if !self.taken
                && inbox.is_empty()
                && let Some(refusal) = self.refusal.take()
            {
                return Err(refusal);
            }
            if inbox.is_empty() {
                tokio::time::sleep(PAUSE).await;
                inbox.push(Input::Tick);
                inbox.extend(io::heads(self.chain, &self.options.chain_id).await);
            }
        }
    }

    async fn sign(&self, request: SignRequest) -> Result<SignedTx, SendError> {
        let timeout_height = NonZeroU64::new(request.timeout_height).unwrap_or(NonZeroU64::MIN);
        let unsigned = Unsigned {
            timeout_height,
            ..self.draft.clone()
        };
        let signer = SignerData {
            chain_id: &self.options.chain_id,
            account_number: request.account_number,
            sequence: request.sequence,
        };
        let signed = tx::sign_with(self.key, signer, &unsigned).await?;
        Ok(SignedTx {
            request,
            bytes: signed.bytes,
        })
    }

    fn alarm(&mut self, alarm: Alarm) -> Result<(), SendError> {
        match alarm {
            Alarm::Halted { height } if self.state.outstanding().is_none() => Err(SendError::Halted {
                height: height.unwrap_or(0),
            }),
            Alarm::AccountUnknown => Err(SendError::AccountUnknown {
                address: self.address.clone(),
            }),
            Alarm::Refused {
                verdict,
                code,
                codespace,
                log,
                ..
            } => {
                let remedy = verdict.remedy();
                self.refusal = Some(SendError::Refused {
                    verdict,
                    abci_code: code,
                    codespace,
                    log,
                    remedy,
                });
                Ok(())
            }
            Alarm::Halted { .. }
            | Alarm::Resumed { .. }
            | Alarm::BlockTimeOff { .. }
            | Alarm::ForeignTransaction { .. }
            | Alarm::SequenceRegressed { .. } => Ok(()),
        }
    }

    async fn ended(&self, end: End) -> Result<Sent, SendError> {
        match end {
            End::Included(inclusion) => loop {
                let hash = inclusion.hash;
                match self.chain.endpoints().find_tx(hash).await {
                    Ok(Some(tx)) => {
                        return Ok(Sent {
                            tx,
                            fee: self.draft.fee.clone(),
                        });
                    }
                    Err(e) if e.class() != Class::Transient => return Err(unread(&inclusion, &e)),
                    // It is in a block: the index, or an endpoint, is behind.
                    Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
                }
            },
            End::Failed(i) => Err(SendError::Failed {
                code: code::contract_code(&i.log),
                message: code::contract_message(&i.log).to_owned(),
                abci_code: i.code,
                codespace: i.codespace,
                hash: i.hash,
                height: i.height,
            }),
            End::Expired { .. } => Err(self.refusal.clone().unwrap_or_else(|| self.expired())),
            End::Consumed { overtaken, .. } => Err(self.consumed(overtaken)),
        }
    }

    fn hash(&self) -> Option<TxHash> {
        self.state.outstanding().map(|tx| tx.hash)
    }

    fn expired(&self) -> SendError {
        self.hash()
            .map_or(SendError::NothingSent, |hash| SendError::Expired { hash })
    }

    /// Its sequence is used: by another one, or by itself, where it is in a block that has, or may have, it.
    fn consumed(&self, overtaken: bool) -> SendError {
        match (self.hash(), self.untold) {
            (Some(hash), _) if overtaken => SendError::Superseded { hash },
            (Some(hash), Some(height)) => SendError::Untold { hash, height },
            (None, _) | (Some(_), None) => self.unknown(),
        }
    }

    fn unknown(&self) -> SendError {
        self.state
            .outstanding()
            .map_or(SendError::NothingSent, |tx| SendError::Unknown {
                hash: tx.hash,
                timeout_height: tx.timeout_height,
            })
    }

    /// What is known when the wait is over.
    pub(super) fn out_of_time(&self) -> SendError {
        if let Some((_, Phase::Ended { result, .. })) = self.state.job()
            && let End::Included(inclusion) = result
        {
            return unread(inclusion, &"no node has shown it within the wait");
        }
        match self.state.condition() {
            Condition::Halted | Condition::CatchingUp if self.state.outstanding().is_none() => {
                SendError::Halted {
                    height: self.state.height().unwrap_or(0),
                }
            }
            _ => self.unknown(),
        }
    }
}

fn unread(inclusion: &Inclusion, reason: &dyn std::fmt::Display) -> SendError {
    SendError::Unread {
        hash: inclusion.hash,
        height: inclusion.height,
        reason: reason.to_string(),
    }
}

/// Whether a broadcast may have left the bytes with an endpoint.
fn may_be_taken(input: &Input) -> bool {
    let Input::CheckTx { answer, .. } = input else {
        return false;
    };
    match answer {
        CheckTx::Unclear => true,
        CheckTx::Answered { verdict, .. } => {
            matches!(
                verdict,
                Verdict::Accepted | Verdict::AlreadyInCache | Verdict::WrongSequence { .. }
            )
        }
    }
}

/// The wall clock in UNIX milliseconds.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::LocalKey;
    use crate::rpc::{ClientOptions, Endpoints};
    use crate::send::{Gas, Pay};
    use crate::settle::EndpointId;
    use crate::tx::Fee;

    #[test]
    fn of_a_transaction_in_a_block_it_is_not_said_that_it_may_still_take_effect() {
        let endpoints = Endpoints::new(&["http://127.0.0.1:1"], ClientOptions::default()).unwrap();
        let (chain, key) = (Chain::new(endpoints), LocalKey::from_secret(&[1; 32]).unwrap());
        let options = SendOptions {
            chain_id: "testing-1".to_owned(),
            prefix: "wasm".to_owned(),
            gas: Gas::Fixed(1),
            pay: Pay::Coins(Vec::new()),
            memo: String::new(),
            deadline: Duration::from_secs(1),
        };
        let draft = Unsigned {
            messages: Vec::new(),
            memo: String::new(),
            timeout_height: NonZeroU64::MAX,
            fee: Fee::default(),
        };
        let mut sender = Sender::new(&chain, &key, &options, String::new(), draft);
        let mut take = |input| settle::step(&mut sender.state, &settle::Config::default(), 1_000_000, input);
        take(Input::Head {
            endpoint: EndpointId(0),
            height: 10,
            block_time_ms: 1_000_000,
        });
        take(Input::Submit { batch: ONLY });
        let asked = take(Input::Account {
            height: 10,
            account_number: 1,
            sequence: 0,
        });
        let request = asked.iter().find_map(|action| match action {
            Action::Sign(request) => Some(*request),
            _ => None,
        });
        let request = request.unwrap();
        let bytes = vec![1];
        let hash = TxHash::of(&bytes);
        take(Input::Signed(SignedTx { request, bytes }));
        assert!(matches!(sender.out_of_time(), SendError::Unknown { .. }));
        // Of blocks that are pruned it is not said that another one took its place.
        assert!(matches!(sender.consumed(false), SendError::Unknown { .. }));
        assert!(matches!(sender.consumed(true), SendError::Superseded { .. }));
        let inclusion = Inclusion {
            hash,
            height: 11,
            code: 0,
            codespace: String::new(),
            log: String::new(),
            gas_used: 0,
        };
        settle::step(
            &mut sender.state,
            &settle::Config::default(),
            1_000_000,
            Input::Found(inclusion),
        );
        let told = sender.out_of_time();
        assert!(
            matches!(told, SendError::Unread { hash: of, height: 11, .. } if of == hash),
            "{told}"
        );
    }
}
