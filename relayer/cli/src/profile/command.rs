//! `profile list|show|use`.

use serde::Serialize;

use super::{Place, Profile, existing};
use crate::args::ProfileCommand;
use crate::context::Context;
use crate::error::{Exit, Failure};
use crate::output::{Align, Lines, Table, Text, note};

/// One profile with its name.
#[derive(Debug, Serialize)]
struct Named {
    name: String,
    in_use: bool,
    #[serde(flatten)]
    profile: Profile,
}

#[derive(Debug, Serialize)]
struct List {
    profiles: Vec<Named>,
}

impl Text for Named {
    fn text(&self) -> String {
        let Self {
            name,
            in_use,
            profile,
        } = self;
        let Profile {
            chain_id,
            node,
            contract,
            code_id,
            checksum,
            gas_prices,
            prefix,
        } = profile;
        let mut lines = Lines::new();
        lines
            .line("name", name)
            .line("in_use", in_use)
            .line("chain_id", chain_id)
            .line("node", node);
        lines
            .line("contract", contract)
            .line("code_id", code_id)
            .maybe("checksum", checksum.as_deref());
        lines
            .maybe("gas_prices", gas_prices.as_ref())
            .line("prefix", prefix);
        lines.finish()
    }
}

impl Text for List {
    fn text(&self) -> String {
        let heads = ["", "NAME", "CHAIN", "NODE", "CONTRACT"].map(|h| (h, Align::Left));
        let mut table = Table::new(heads);
        for Named {
            name,
            in_use,
            profile,
        } in &self.profiles
        {
            let mark = if *in_use { "*" } else { " " };
            let Profile {
                chain_id,
                node,
                contract,
                ..
            } = profile.clone();
            table.row([mark.to_owned(), name.clone(), chain_id, node, contract]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        self.profiles
            .is_empty()
            .then(|| "no profiles; virtengine deploy makes one".to_owned())
    }
}

/// Runs the command.
pub(crate) fn run(context: &Context, command: &ProfileCommand) -> Result<(), Failure> {
    let home = &context.home;
    match command {
        ProfileCommand::List => {
            let chosen = context.chosen()?.map(|p| p.name());
            let named = |name: String| {
                let profile = existing(home, &Place::Name(name.clone()))?;
                Ok::<_, Failure>(Named {
                    in_use: chosen.as_deref() == Some(&name),
                    name,
                    profile,
                })
            };
            let profiles = home.names()?.into_iter().map(named).collect::<Result<_, _>>()?;
            context.printer.print(&List { profiles })
        }
        ProfileCommand::Show { name } => {
            let chosen = context.chosen()?;
            let place = match name {
                Some(name) => Place::parse(name)?,
                None => chosen.clone().ok_or_else(|| {
                    Failure::new(Exit::NotFound, "profile_not_found", "no profile is in use")
                        .remedy("virtengine profile use NAME, or make one with virtengine deploy")
                })?,
            };
            let profile = existing(home, &place)?;
            let in_use = chosen.as_ref() == Some(&place);
            context.printer.print(&Named {
                name: place.name(),
                in_use,
                profile,
            })
        }
        ProfileCommand::Use { name } => {
            let place = Place::Name(name.clone());
            existing(home, &place)?;
            home.choose(name)?;
            note(&format!("profile {name} is in use"));
            Ok(())
        }
    }
}
