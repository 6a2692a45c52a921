//! Signs transactions with cosmrs, and spoils them on request.

use std::cell::Cell;

use cosmrs::crypto::secp256k1::SigningKey;
use cosmrs::proto::cosmos::bank::v1beta1::MsgSend;
use cosmrs::proto::cosmos::base::v1beta1::Coin as ProtoCoin;
use cosmrs::proto::cosmwasm::wasm::v1::{
    MsgExecuteContract, MsgInstantiateContract, MsgMigrateContract, MsgStoreCode, MsgUpdateAdmin,
};
use cosmrs::proto::traits::{Message, Name};
use cosmrs::tx::{BodyBuilder, Fee, SignDoc, SignerInfo};
use cosmrs::{AccountId, Any, Coin};

use super::CHAIN_ID;

pub(crate) struct Wallet {
    seed: u8,
    pub(crate) number: u64,
    pub(crate) sequence: Cell<u64>,
    pub(crate) chain_id: String,
    pub(crate) gas: u64,
    pub(crate) fee: Option<(u128, &'static str)>,
    pub(crate) timeout_height: u32,
    pub(crate) memo: String,
}

pub(crate) fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: format!("/{}", M::full_name()),
        value: message.encode_to_vec(),
    }
}

pub(crate) fn coins(coins: &[(u128, &str)]) -> Vec<ProtoCoin> {
    coins
        .iter()
        .map(|(n, denom)| ProtoCoin {
            amount: n.to_string(),
            denom: (*denom).to_string(),
        })
        .collect()
}

impl Wallet {
    pub(crate) fn new(seed: u8) -> Self {
        Self {
            seed,
            number: 0,
            sequence: Cell::new(0),
            chain_id: CHAIN_ID.to_string(),
            gas: 400_000,
            fee: None,
            timeout_height: 0,
            memo: String::new(),
        }
    }

    pub(crate) fn key(&self) -> SigningKey {
        SigningKey::from_slice(&[self.seed; 32]).unwrap()
    }

    pub(crate) fn id(&self) -> AccountId {
        self.key().public_key().account_id("wasm").unwrap()
    }

    pub(crate) fn address(&self) -> String {
        self.id().to_string()
    }

    /// Signs with this wallet's number and sequence; does not advance the sequence.
    pub(crate) fn sign(&self, msgs: &[Any]) -> Vec<u8> {
        let body = BodyBuilder::new()
            .msgs(msgs.iter().cloned())
            .memo(self.memo.clone())
            .timeout_height(self.timeout_height)
            .finish();
        let fee = match self.fee {
            Some((amount, denom)) => Fee::from_amount_and_gas(
                Coin {
                    amount,
                    denom: denom.parse().unwrap(),
                },
                self.gas,
            ),
            None => Fee {
                amount: vec![],
                gas_limit: self.gas,
                payer: None,
                granter: None,
            },
        };
        let auth =
            SignerInfo::single_direct(Some(self.key().public_key()), self.sequence.get()).auth_info(fee);
        let document = SignDoc::new(&body, &auth, &self.chain_id.parse().unwrap(), self.number).unwrap();
        document.sign(&self.key()).unwrap().to_bytes().unwrap()
    }

    /// Signs, then advances the sequence.
    pub(crate) fn sign_next(&self, msgs: &[Any]) -> Vec<u8> {
        let tx = self.sign(msgs);
        self.sequence.set(self.sequence.get() + 1);
        tx
    }

    pub(crate) fn send(&self, to: &str, amount: &[(u128, &str)]) -> Any {
        any(&MsgSend {
            from_address: self.address(),
            to_address: to.to_string(),
            amount: coins(amount),
        })
    }

    pub(crate) fn instantiate(&self, code_id: u64, msg: &str, label: &str, funds: &[(u128, &str)]) -> Any {
        any(&MsgInstantiateContract {
            sender: self.address(),
            admin: self.address(),
            code_id,
            label: label.to_string(),
            msg: msg.as_bytes().to_vec(),
            funds: coins(funds),
        })
    }

    pub(crate) fn execute(&self, contract: &str, msg: &str, funds: &[(u128, &str)]) -> Any {
        any(&MsgExecuteContract {
            sender: self.address(),
            contract: contract.to_string(),
            msg: msg.as_bytes().to_vec(),
            funds: coins(funds),
        })
    }

    pub(crate) fn migrate(&self, contract: &str, msg: &str) -> Any {
        any(&MsgMigrateContract {
            sender: self.address(),
            contract: contract.to_string(),
            code_id: 1,
            msg: msg.as_bytes().to_vec(),
        })
    }

    pub(crate) fn update_admin(&self, contract: &str, admin: &str) -> Any {
        any(&MsgUpdateAdmin {
            sender: self.address(),
            new_admin: admin.to_string(),
            contract: contract.to_string(),
        })
    }

    pub(crate) fn store_code(&self) -> Any {
        any(&MsgStoreCode {
            sender: self.address(),
            wasm_byte_code: b"\0asm".to_vec(),
            instantiate_permission: None,
        })
    }
}
