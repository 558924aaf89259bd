use duckdb::types::Value;
use duckdb::{Config, Connection, Result};
use std::io::BufRead;

fn text(value: Value) -> String {
    match value {
        Value::Null => "NULL".to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::BigInt(value) => value.to_string(),
        Value::UBigInt(value) => value.to_string(),
        Value::HugeInt(value) => value.to_string(),
        Value::Text(value) => value,
        other => format!("{other:?}"),
    }
}

fn run(connection: &Connection, sql: &str) -> Result<String> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut values = Vec::new();
    while let Some(row) = rows.next()? {
        for column in 0..row.as_ref().column_count() {
            values.push(text(row.get(column)?));
        }
    }
    Ok(if values.is_empty() { "ok".to_string() } else { values.join(" ") })
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).expect("usage: host FILE");
    let file = std::fs::File::open(path).expect("the file of statements");
    let connection = Connection::open_in_memory_with_flags(Config::default().allow_unsigned_extensions()?)?;
    for line in std::io::BufReader::new(file).lines() {
        let outcome = run(&connection, &line.expect("a line of text"));
        println!("{}", outcome.unwrap_or_else(|error| format!("error: {error}")).replace('\n', " "));
    }
    Ok(())
}
