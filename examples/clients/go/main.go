// A client of Fumehood in Go: lists tools, calls one, streams one, and meets every kind of failure.
//
//	go run . unix:.fumehood/fumehood.sock      # or: FUMEHOOD_ADDRESS=127.0.0.1:7332 go run .
//
// It expects a sidecar with the plugins of examples/plugins/dice and text, and exits with status 1 if anything is not as
// docs/protocol.md, part 2, says. gen/ is generated: see generate.sh.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fumehood/examples/clients/go/fumehood"
	pb "fumehood/examples/clients/go/gen/fumehood/v1"
)

const defaultAddress = "unix:.fumehood/fumehood.sock"

func main() {
	address := cmp.Or(os.Getenv("FUMEHOOD_ADDRESS"), defaultAddress)
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := run(context.Background(), address); err != nil {
		fmt.Fprintln(os.Stderr, "surprise:", err)
		os.Exit(1)
	}
	fmt.Println("all as expected")
}

// run goes through all of it over one connection, which is made once and shared.
func run(ctx context.Context, address string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := pb.NewToolServiceClient(connection)

	steps := []func(context.Context, pb.ToolServiceClient) error{
		listTools, callTool, streamTool, runOutOfTime, readErrors, useSession,
	}
	for _, step := range steps {
		if err := within(ctx, client, step); err != nil {
			return err
		}
	}
	return nil
}

// within gives a step its deadline. gRPC sends it along, and it travels into the plugin.
func within(ctx context.Context, client pb.ToolServiceClient, step func(context.Context, pb.ToolServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, fumehood.Deadline)
	defer cancel()
	return step(ctx, client)
}
