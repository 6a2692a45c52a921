use anyhow::{Context as _, bail};
use hpc_schema::id::ClusterId;

use crate::admin::Wanted;

/// Lines that are read at most.
const MAX_LINES: usize = 100_000;

/// Reads `node_id,pubkey[,cluster_id[,attestation_key]]`, one node a line. Empty lines, lines after `#` and a first line that names the
/// columns are passed over. Errors name the line; no node may stand twice.
pub(super) fn parse(text: &str, cluster: Option<&ClusterId>) -> anyhow::Result<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (number, line) in (1usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || (number == 1 && line.starts_with("node_id")) {
            continue;
        }
        if number > MAX_LINES {
            bail!("more than {MAX_LINES} lines; split the file");
        }
        let fields: Vec<&str> = line.split(',').map(|f| f.trim().trim_matches('"')).collect();
        let (node, key, of, tpm) = match *fields.as_slice() {
            [node, key] => (node, key, None, None),
            [node, key, of] => (node, key, Some(of), None),
            [node, key, of, tpm] => (node, key, Some(of), Some(tpm)),
            _ => bail!("line {number}: write node_id,pubkey or node_id,pubkey,cluster_id[,attestation_key]"),
        };
        let cluster_id = match (of.filter(|c| !c.is_empty()), cluster) {
            (Some(of), _) => of.parse().with_context(|| format!("line {number}: cluster_id"))?,
            (None, Some(cluster)) => cluster.clone(),
            (None, None) => bail!("line {number}: names no cluster; add a column or --cluster-id"),
        };
        let one = Wanted {
            cluster_id,
            node_id: node.parse().with_context(|| format!("line {number}: node_id"))?,
            pubkey: key.parse().with_context(|| format!("line {number}: pubkey"))?,
            attestation_key: tpm.filter(|t| !t.is_empty()).map(str::to_owned),
        };
        if !seen.insert((one.cluster_id.clone(), one.node_id.clone())) {
            bail!("line {number}: {node} stands twice");
        }
        wanted.push(one);
    }
    if wanted.is_empty() {
        bail!("the file names no node");
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Seed;

    #[test]
    fn nodes_are_read_line_by_line_and_errors_name_the_line() {
        let key = |n: u8| Seed::from_bytes(&[n; 32]).unwrap().public().to_base64();
        let (a, b) = (key(1), key(2));
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let text = format!(
            "node_id,pubkey,cluster_id\n# rack 1\nnode-0001,{a}\n\n node-0002 , \"{b}\" ,hpc-cluster-2\n"
        );
        let read = parse(&text, Some(&cluster)).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].cluster_id, cluster);
        assert_eq!(
            (read[1].node_id.as_str(), read[1].cluster_id.as_str()),
            ("node-0002", "hpc-cluster-2")
        );
        for (bad, what) in [
            (String::new(), "names no node"),
            (format!("node-0001,{a}\nx,{b}"), "line 2: node_id"),
            ("node-0001,AAAA".to_owned(), "line 1: pubkey"),
            (
                format!("node-0001,{a}\nnode-0001,{b}"),
                "line 2: node-0001 stands twice",
            ),
            ("node-0001".to_owned(), "line 1: write"),
        ] {
            let error = format!("{:#}", parse(&bad, Some(&cluster)).unwrap_err());
            assert!(error.contains(what), "{error}");
        }
        assert!(
            parse(&format!("node-0001,{a}"), None)
                .unwrap_err()
                .to_string()
                .contains("--cluster-id")
        );
    }
}
