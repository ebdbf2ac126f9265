fn main() -> std::io::Result<()> {
    let protos = std::env::var("PROTOS").unwrap_or("../../../protos".into());
    tonic_prost_build::configure()
        .build_server(false)
        .compile_protos(&[format!("{protos}/fumehood/v1/tool_service.proto")], &[protos])
}
