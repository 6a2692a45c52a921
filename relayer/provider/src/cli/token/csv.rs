use anyhow::{Context as _, bail};
use hpc_schema::id::ClusterId;

use crate::admin::Wanted;

/// Lines that are read at most.
const MAX_LINES: usize = 100_000;

/// What a file of nodes says.
#[derive(Debug)]
pub(super) struct File {
    /// Its nodes.
    pub(super) wanted: Vec<Wanted>,
    /// Whether a line names its cluster: two clusters may have a node of one name.
    pub(super) names_clusters: bool,
}

/// Reads `node_id,pubkey[,cluster_id[,attestation_key]]`, one node a line. Empty lines, lines after `#`, a first line that names
/// the columns, and the mark with which some programs begin a file are passed over. Errors name the line; no node may stand
/// twice.
pub(super) fn parse(text: &str, cluster: Option<&ClusterId>) -> anyhow::Result<File> {
    let (mut wanted, mut names_clusters) = (Vec::new(), false);
    let mut seen = std::collections::HashSet::new();
    // Excel's.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || (number == 1 && names_columns(line)) {
            continue;
        }
        if number > MAX_LINES {
            bail!("more than {MAX_LINES} lines; split the file");
        }
        let fields: Vec<&str> = line.split(',').map(field).collect();
        let (node, key, of, tpm) = match *fields.as_slice() {
            [node, key] => (node, key, None, None),
            [node, key, of] => (node, key, Some(of), None),
            [node, key, of, tpm] => (node, key, Some(of), Some(tpm)),
            _ => bail!("line {number}: write node_id,pubkey or node_id,pubkey,cluster_id[,attestation_key]"),
        };
        let of = of.filter(|c| !c.is_empty());
        names_clusters |= of.is_some();
        let cluster_id = match (of, cluster) {
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
    Ok(File {
        wanted,
        names_clusters,
    })
}

/// A field without what is around it.
fn field(text: &str) -> &str {
    text.trim().trim_matches('"')
}

/// Whether a line is no node: it says what the columns are. A node's name may begin as they do.
fn names_columns(line: &str) -> bool {
    line.split(',').next().map(field) == Some("node_id")
}

/// The line of a node whose token was made, with its cluster where the file names clusters.
pub(super) fn made(one: &Wanted, token: &str, names_clusters: bool) -> String {
    if names_clusters {
        format!("{},{token},{}", one.node_id, one.cluster_id)
    } else {
        format!("{},{token}", one.node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Seed;

    #[test]
    fn only_a_line_of_column_names_is_passed_over_and_excels_mark_is_no_part_of_a_name() {
        let key = |n: u8| Seed::from_bytes(&[n; 32]).unwrap().public().to_base64();
        let (a, b) = (key(1), key(2));
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let names = |text: &str| -> Vec<String> {
            let read = parse(text, Some(&cluster)).unwrap();
            assert!(!read.names_clusters);
            read.wanted.iter().map(|w| w.node_id.to_string()).collect()
        };
        let nodes = format!("node_id-001,{a}\nnode_id-002,{b}\n");
        assert_eq!(names(&nodes), ["node_id-001", "node_id-002"]);
        for head in ["node_id,pubkey", " \"node_id\" , pubkey", "node_id"] {
            for mark in ["", "\u{feff}"] {
                let text = format!("{mark}{head}\r\nnode-0001,{a}\r\n");
                assert_eq!(names(&text), ["node-0001"], "{text:?}");
            }
        }
        assert_eq!(names(&format!("\u{feff}node-0001,{a}")), ["node-0001"]);
        let both = format!("node-0001,{a},hpc-cluster-1\nnode-0001,{b},hpc-cluster-2");
        let both = parse(&both, None).unwrap();
        assert!(both.names_clusters);
        assert_eq!(made(&both.wanted[1], "t", true), "node-0001,t,hpc-cluster-2");
        assert_eq!(made(&both.wanted[1], "t", false), "node-0001,t");
    }

    #[test]
    fn nodes_are_read_line_by_line_and_errors_name_the_line() {
        let key = |n: u8| Seed::from_bytes(&[n; 32]).unwrap().public().to_base64();
        let (a, b) = (key(1), key(2));
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let text = format!(
            "node_id,pubkey,cluster_id\n# rack 1\nnode-0001,{a}\n\n node-0002 , \"{b}\" ,hpc-cluster-2\n"
        );
        let read = parse(&text, Some(&cluster)).unwrap().wanted;
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
