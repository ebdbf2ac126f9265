package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"fumehood/examples/clients/go/fumehood"
	pb "fumehood/examples/clients/go/gen/fumehood/v1"
)

type diceArguments struct {
	Count int `json:"count"`
	Sides int `json:"sides"`
}

type countArguments struct {
	Upto    int `json:"upto"`
	DelayMs int `json:"delay_ms"`
}

// listTools asks page by page: a sidecar may have a thousand tools, and a message has a size limit.
func listTools(ctx context.Context, client pb.ToolServiceClient) error {
	var names []string
	request := &pb.ListToolsRequest{PageSize: 2}
	for {
		page, err := client.ListTools(ctx, request)
		if err != nil {
			return err
		}
		for _, tool := range page.GetTools() {
			// For a model, hand over the definition's name, description and input_schema_json.
			names = append(names, tool.GetDefinition().GetName())
		}
		request.PageToken = page.GetNextPageToken()
		if request.PageToken == "" {
			break
		}
	}
	fmt.Println("tools:", strings.Join(names, ", "))
	if !slices.Contains(names, "roll_dice") || !slices.Contains(names, "slow_count") {
		return errors.New("the plugins dice and text are needed")
	}
	return nil
}

// callTool makes one call, and shows what it says of the sandbox that it ran in.
func callTool(ctx context.Context, client pb.ToolServiceClient) error {
	var roll struct {
		Rolls []int `json:"rolls"`
		Total int   `json:"total"`
	}
	result, err := fumehood.Call(ctx, client, "roll_dice", diceArguments{Count: 2, Sides: 6}, 0, &roll)
	if err != nil {
		return err
	}
	var layers []string
	for _, layer := range result.GetSandbox().GetLayers() {
		layers = append(layers, layer.GetName())
	}
	fmt.Printf("roll_dice: %v makes %d, behind %s\n", roll.Rolls, roll.Total, strings.Join(layers, ", "))
	if len(roll.Rolls) != 2 || roll.Rolls[0]+roll.Rolls[1] != roll.Total {
		return fmt.Errorf("a roll of two dice was expected, not %v", roll)
	}
	return nil
}

// streamTool makes a call as a stream: started, updates, finished.
func streamTool(ctx context.Context, client pb.ToolServiceClient) error {
	call, err := fumehood.Request("slow_count", countArguments{Upto: 3, DelayMs: 20})
	if err != nil {
		return err
	}
	stream, err := client.StreamTool(ctx, &pb.StreamToolRequest{Call: call})
	if err != nil {
		return err
	}
	updates := 0
	var finished *pb.ToolResult
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch event := response.GetEvent().(type) {
		case *pb.StreamToolResponse_Started:
			fmt.Println("slow_count: started")
		case *pb.StreamToolResponse_Update:
			updates++
			update := event.Update
			fmt.Printf("slow_count: %s (%g of %g)\n", update.GetMessage(), update.GetProgress(), update.GetTotal())
		case *pb.StreamToolResponse_Finished:
			finished = event.Finished
		} // a newer sidecar says more
	}
	if finished == nil || updates != 3 {
		return fmt.Errorf("three updates and a result were expected, not %d and %v", updates, finished)
	}
	if err := fumehood.Failure(finished); err != nil {
		return err
	}
	fmt.Println("slow_count: finished,", finished.GetDetailsJson())
	return nil
}
