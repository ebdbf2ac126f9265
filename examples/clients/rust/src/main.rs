use std::time::Duration;

pub mod fumehood {
    tonic::include_proto!("fumehood.v1");
}
use fumehood::{tool_service_client::ToolServiceClient, CallToolRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).expect("an address: unix:PATH or http://HOST:PORT");
    let mut tools = ToolServiceClient::connect(address).await?;
    let mut request = tonic::Request::new(CallToolRequest {
        tool: "roll_dice".into(),
        arguments_json: serde_json::json!({"count": 2, "sides": 6}).to_string(),
        ..Default::default()
    });
    request.set_timeout(Duration::from_secs(10));
    let result = tools.call_tool(request).await?.into_inner().result.expect("is always set");
    if let Some(error) = result.error {
        return Err(format!("{}: {}", error.code, error.message).into());
    }
    let details: serde_json::Value = serde_json::from_str(&result.details_json)?;
    println!("rolled {}", details["total"]);
    Ok(())
}
