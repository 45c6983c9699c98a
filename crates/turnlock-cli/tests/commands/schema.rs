use std::collections::BTreeSet;

use boon::{Compiler, Schemas};
use serde_json::Value;

/// The published schema of `--json`, made strict: a field that it does not have is an error.
///
/// Programs that use the schema must accept new fields. The tests must not.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn load() -> Self {
        let mut schema =
            serde_json::from_str(include_str!("../../../../docs/program-json.schema.json")).unwrap();
        make_strict(&mut schema);
        Self(schema)
    }

    /// Validates an object. The error has the places that do not match.
    pub(crate) fn validate(&self, definition: &str, object: &Value) -> Result<(), String> {
        const NAME: &str = "program-json.schema.json";
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.enable_format_assertions();
        compiler.add_resource(NAME, self.0.clone()).unwrap();
        let index = compiler.compile(&format!("{NAME}#/$defs/{definition}"), &mut schemas);
        let index = index.unwrap_or_else(|error| panic!("{definition}: {error:#}"));
        schemas.validate(object, index).map_err(|error| format!("{error:#}\n{object}"))
    }

    /// Validates an object, and panics if it does not match.
    pub(crate) fn check(&self, definition: &str, object: &Value) {
        if let Err(error) = self.validate(definition, object) {
            panic!("{error}");
        }
    }

    /// The names of all definitions of objects.
    pub(crate) fn objects(&self) -> Vec<&str> {
        let all = self.0["$defs"].as_object().unwrap();
        all.iter().filter(|(_, schema)| schema["properties"].is_object()).map(|(name, _)| &**name).collect()
    }

    /// The fields of an object. All are required.
    pub(crate) fn fields(&self, definition: &str) -> BTreeSet<String> {
        let schema = &self.0["$defs"][definition];
        let Some(properties) = schema["properties"].as_object() else { panic!("no object {definition:?}") };
        let fields: BTreeSet<_> = properties.keys().cloned().collect();
        let required: Vec<String> = serde_json::from_value(schema["required"].clone()).unwrap();
        assert_eq!(fields, required.into_iter().collect(), "{definition}: fields are never omitted");
        fields
    }
}

/// Rejects fields that an object does not have, also in the objects inside it.
fn make_strict(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(make_strict),
        Value::Object(members) => {
            if members.get("properties").is_some_and(Value::is_object) && members.contains_key("required") {
                members.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            members.values_mut().for_each(make_strict);
        }
        _ => {}
    }
}
