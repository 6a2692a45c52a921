use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::admin::http::{ALWAYS, PREFIX, Shape, Spec};

/// One operation of the document.
pub(super) struct Operation {
    pub(super) path: String,
    pub(super) method: &'static str,
    pub(super) tag: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: String,
    /// Name of the security scheme; none: no credential.
    pub(super) security: Option<&'static str>,
    pub(super) shape: Shape,
    /// Status, what it means, its body.
    pub(super) answers: Vec<(u16, &'static str, Content)>,
    pub(super) problems: Vec<u16>,
}

/// What an answer holds.
pub(super) enum Content {
    /// `shape.answer`.
    Usual,
    /// Something else.
    Other(Schema),
    /// Nothing: the status says it all.
    Nothing,
}

impl Operation {
    pub(super) fn admin(spec: &Spec, shape: Shape) -> Self {
        Self {
            path: format!("{PREFIX}{}", spec.path),
            method: spec.method,
            tag: "admin",
            id: spec.id,
            summary: format!("{} ({})", spec.summary, spec.role),
            security: Some("admin_token"),
            shape,
            answers: vec![(200, "Done", Content::Usual)],
            problems: ALWAYS.iter().chain(spec.also).copied().collect(),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        let mut responses = Map::new();
        for (status, what, content) in &self.answers {
            let holds = |schema: &Schema| json!({ "description": what, "content": { "application/json": { "schema": schema } } });
            let answer = match content {
                Content::Usual => holds(&self.shape.answer),
                Content::Other(schema) => holds(schema),
                Content::Nothing => json!({ "description": what }),
            };
            responses.insert(status.to_string(), answer);
        }
        for status in &self.problems {
            let reference = format!("#/components/responses/Problem{status}");
            responses.insert(status.to_string(), json!({ "$ref": reference }));
        }
        let mut parameters = Vec::new();
        for (place, schema) in [("path", &self.shape.path), ("query", &self.shape.query)] {
            parameters.extend(schema.iter().flat_map(|s| taken_apart(place, s)));
        }
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "security": self.security.map_or_else(Vec::new, |s| vec![json!({ s: [] })]),
            "responses": responses
        });
        if let Some(members) = operation.as_object_mut() {
            if !parameters.is_empty() {
                members.insert("parameters".into(), Value::Array(parameters));
            }
            if let Some(body) = &self.shape.body {
                let body = json!({ "required": true, "content": { "application/json": { "schema": body } } });
                members.insert("requestBody".into(), body);
            }
        }
        operation
    }
}

/// The members of an object as parameters, each with its schema.
fn taken_apart(place: &str, schema: &Schema) -> Vec<Value> {
    let members = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    members
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let mut schema = schema.clone();
            let description = schema.as_object_mut().and_then(|s| s.remove("description"));
            let needed = required.is_some_and(|r| r.iter().any(|n| n == name));
            json!({
                "name": name,
                "in": place,
                "required": place == "path" || needed,
                "description": description.unwrap_or_default(),
                "schema": plain(schema)
            })
        })
        .collect()
}

/// A parameter is text or absent, never null: what `Option` adds for JSON is taken away.
fn plain(schema: Value) -> Value {
    let mut schema = schema;
    let Some(members) = schema.as_object_mut() else {
        return schema;
    };
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|t| t != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            members.insert("type".into(), one);
        }
    }
    members.remove("default");
    let real = members.get("anyOf").and_then(Value::as_array).and_then(|any| {
        let mut others = any.iter().filter(|s| s.get("type").is_none_or(|t| t != "null"));
        others.next().cloned().filter(|_| others.next().is_none())
    });
    real.unwrap_or(schema)
}

/// The responses that problems refer to.
pub(super) fn problems(schema: &Schema) -> Value {
    let known = [
        (
            400,
            "What was sent cannot be read, or holds a value that cannot be",
        ),
        (401, "No credential that counts"),
        (403, "The credential does not allow this"),
        (404, "There is no such thing"),
        (408, "The request did not arrive in time"),
        (409, "It cannot be as things stand"),
        (413, "The body is too large"),
        (415, "The body is not JSON, or compressed"),
        (429, "Too many requests; Retry-After says when to come again"),
        (431, "The head is too large"),
        (503, "Not now; Retry-After says when to come again"),
    ];
    let mut all = Map::new();
    for (status, what) in known {
        let mut response = json!({
            "description": what,
            "content": { "application/problem+json": { "schema": schema } }
        });
        if matches!(status, 429 | 503)
            && let Some(members) = response.as_object_mut()
        {
            let after = json!({ "Retry-After": { "description": "Seconds", "schema": { "type": "integer", "minimum": 1 } } });
            members.insert("headers".into(), after);
        }
        all.insert(format!("Problem{status}"), response);
    }
    Value::Object(all)
}
