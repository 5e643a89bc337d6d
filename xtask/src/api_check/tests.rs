use serde_json::json;

use super::*;

/// A small deployment's worth of Coder's document.
fn document() -> Value {
    json!({
        "paths": {
            "/things": {
                "get": {"responses": {"200": {"schema": {"type": "array", "items": {"$ref": "#/definitions/a.Thing"}}}}},
                "post": {
                    "parameters": [{"in": "query"}, {"in": "body", "schema": {"$ref": "#/definitions/a.Create"}}],
                    "responses": {"201": {"schema": {"$ref": "#/definitions/a.Thing"}}, "400": {}}
                }
            },
            "/things/{thing}": {"delete": {"responses": {"204": {"description": "gone"}}}}
        },
        "definitions": {
            "a.Create": {"type": "object", "properties": {"name": {"type": "string"}}},
            "a.Base": {"type": "object", "properties": {"id": {"type": "string"}}},
            "a.Owner": {"type": "object", "properties": {"login": {"type": "string"}}},
            "a.Thing": {"allOf": [{"$ref": "#/definitions/a.Base"}], "type": "object", "properties": {
                "owners": {"type": "object", "additionalProperties": {"$ref": "#/definitions/a.Owner"}},
                "name": {"type": "string"}
            }}
        }
    })
}

fn used(method: &str, path: &str, request: Option<Value>, response: Option<Value>) -> Used {
    Used { method: method.to_owned(), path: path.to_owned(), request, response }
}

fn complaints(used: Used) -> Vec<String> {
    check(&[used], &document(), &[])
}

/// As our own schemas are written: definitions inside, references to them.
fn things(owner: &Value) -> Value {
    let thing = json!({"type": "object", "properties": {
        "id": {"type": "string"}, "owners": {"type": "object", "additionalProperties": owner}
    }});
    json!({"type": "array", "items": {"$ref": "#/$defs/Thing"}, "$defs": {"Thing": thing}})
}

#[test]
fn what_is_documented_passes_through_lists_references_maps_and_all_of() {
    let owner = json!({"anyOf": [{"properties": {"login": {"type": "string"}}}, {"type": "null"}]});
    assert_eq!(complaints(used("GET", "/things", None, Some(things(&owner)))), Vec::<String>::new());
    assert_eq!(complaints(used("DELETE", "/things/{thing}", None, None)), Vec::<String>::new());
}

#[test]
fn a_route_that_is_not_documented_is_named() {
    assert_eq!(complaints(used("PUT", "/things", None, None)), ["PUT /things: is not documented"]);
    assert_eq!(complaints(used("GET", "/thing", None, None)), ["GET /thing: is not documented"]);
}

#[test]
fn a_property_that_is_not_documented_is_named_with_its_place() {
    let owner = json!({"properties": {"logn": {"type": "string"}}});
    assert_eq!(
        complaints(used("GET", "/things", None, Some(things(&owner)))),
        ["GET /things: the answer[].owners{}: `logn` is not documented"]
    );
    let sent = json!({"properties": {"name": {}, "colour": {}}});
    assert_eq!(
        complaints(used("POST", "/things", Some(sent), None)),
        ["POST /things: the request: `colour` is not documented"]
    );
}

#[test]
fn a_list_that_is_no_list_and_a_body_that_is_none_are_named() {
    let object = json!({"properties": {"id": {}}});
    let answer = used("GET", "/things", None, Some(object.clone()));
    assert_eq!(complaints(answer), ["GET /things: the answer: is documented as a list"]);
    let none = used("DELETE", "/things/{thing}", None, Some(object));
    assert_eq!(complaints(none), ["DELETE /things/{thing}: the answer: has no documented body"]);
}

#[test]
fn an_exception_excuses_one_complaint_and_must_excuse_something() {
    let complaint = "the answer: is documented as a list";
    let exceptions = [Exception { route: "GET /things", complaint, bed_test: "" }];
    let wrong = [used("GET", "/things", None, Some(json!({"properties": {"id": {}, "size": {}}})))];
    assert_eq!(
        check(&wrong, &document(), &exceptions),
        ["GET /things: the answer: `size` is not documented"]
    );
    let idle = check(&[], &document(), &exceptions);
    assert_eq!(idle, ["GET /things: the exception `the answer: is documented as a list` excuses nothing"]);
}

#[test]
fn every_exception_names_a_test_that_there_is() {
    let tests = concat!(
        include_str!("../../../crates/client/tests/it/bed.rs"),
        include_str!("../../../crates/client/tests/it/bed/provisioner_keys.rs"),
        include_str!("../../../crates/engine/tests/it/bed/lifecycle.rs"),
        include_str!("../../../crates/engine/tests/it/bed/roles.rs"),
    );
    for Exception { route, complaint: _, bed_test } in EXCEPTIONS {
        assert!(tests.contains(&format!("fn {bed_test}(")), "{route}: there is no test {bed_test}");
    }
}
