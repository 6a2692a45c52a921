use cosmwasm_std::{Binary, Deps, Env};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::RawPageAnswer;

use super::page::{StatsPage, load_all};
use crate::cluster::ClusterHot;
use crate::config::query::block;
use crate::error::{ContractError, refuse};

/// The stored bytes of one page.
pub(crate) fn page(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: &ClusterId,
    page: u16,
) -> Result<RawPageAnswer, ContractError> {
    let cluster = ClusterHot::load(deps.storage, cluster_id)?;
    if page >= cluster.pages() {
        return refuse(
            Code::InvalidField,
            format!(
                "page {page}: cluster {cluster_id} has {} pages, from 0",
                cluster.pages()
            ),
        );
    }
    let (keys, sections, hot) = load_all(deps.storage, cluster.index, page)?;
    let stats = StatsPage::load(deps.storage, cluster.index, page)?;
    let base64 = |bytes: &[u8]| Binary::from(bytes).to_base64();
    Ok(RawPageAnswer {
        hot: base64(hot.bytes()),
        keys: base64(keys.bytes()),
        sections: base64(sections.bytes()),
        stats: base64(stats.bytes()),
        block: block(env),
    })
}
