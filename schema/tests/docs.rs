//! The protocol reference must list every code with its number and remedy, and no other.

use hpc_schema::code::Code;

#[test]
fn the_protocol_reference_lists_exactly_the_codes_that_exist() {
    let page = include_str!("../../docs/protocol.md");
    let table = page.split("## 6. Codes").nth(1).unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|l| l.starts_with("| ") && !l.starts_with("| number"))
        .collect();
    let wanted: Vec<String> = Code::ALL
        .iter()
        .map(|c| format!("| {} | `{c}` | {} |", c.number(), c.remedy()))
        .collect();
    assert_eq!(rows, wanted);
}
