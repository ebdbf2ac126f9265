package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fumehood/examples/clients/go/fumehood"
	pb "fumehood/examples/clients/go/gen/fumehood/v1"
)

const short = 300 * time.Millisecond // for calls that are meant to run out of time

// runOutOfTime meets both bounds. A request's timeout is answered with a result; gRPC's deadline cuts the call off.
func runOutOfTime(ctx context.Context, client pb.ToolServiceClient) error {
	slow := countArguments{Upto: 100, DelayMs: 100}
	_, err := fumehood.Call(ctx, client, "slow_count", slow, short, nil)
	late, err := toolError(err, "TOOL_TIMEOUT")
	if err != nil {
		return err
	}
	var details struct {
		Bound string  `json:"bound"`
		Value float64 `json:"value"`
	}
	if err := json.Unmarshal(late.Details, &details); err != nil {
		return err
	}
	fmt.Printf("timeout: %s by the %s after %g s\n", late.Code, details.Bound, details.Value)

	ctx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	_, err = fumehood.Call(ctx, client, "slow_count", slow, 0, nil)
	var tool *fumehood.ToolError
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		fmt.Println("deadline: DEADLINE_EXCEEDED")
	case errors.As(err, &tool) && tool.Code == "CANCELLED_TIMEOUT":
		// The sidecar watches the same deadline. Now and then its answer is here before our own clock has noticed.
		fmt.Println("deadline:", tool.Code)
	default:
		return fmt.Errorf("a call outlived its deadline: %w", surprise(err))
	}
	return nil
}

// readErrors reads failures of the call from its result, which a model can mend, and refused requests from their status.
func readErrors(ctx context.Context, client pb.ToolServiceClient) error {
	_, err := fumehood.Call(ctx, client, "roll_dice", diceArguments{Count: 11, Sides: 7}, 0, nil)
	bad, err := toolError(err, "TOOL_EXECUTION_FAILED")
	if err != nil {
		return err
	}
	var details struct {
		Reason    string              `json:"reason"`
		Arguments []fumehood.Argument `json:"arguments"`
	}
	if err := json.Unmarshal(bad.Details, &details); err != nil {
		return err
	}
	if details.Reason != "invalid_arguments" || len(details.Arguments) != 2 {
		return fmt.Errorf("two invalid arguments were expected, not %s", bad.Details)
	}
	fmt.Printf("bad arguments: %s, %s\n", bad.Code, details.Reason)
	for _, argument := range details.Arguments {
		fmt.Printf("  %s: %s (%s)\n", argument.Pointer, argument.Message, argument.Rule)
	}

	_, err = fumehood.Call(ctx, client, "roll_dise", struct{}{}, 0, nil)
	unknown, err := toolError(err, "TOOL_NOT_FOUND")
	if err != nil {
		return err
	}
	fmt.Printf("unknown tool: %s: %s\n", unknown.Code, unknown.Message)

	_, err = fumehood.Call(ctx, client, "", struct{}{}, 0, nil)
	if status.Code(err) != codes.InvalidArgument || fumehood.Reason(err) != "REQUEST_INVALID" {
		return fmt.Errorf("a request without a tool was not refused as invalid: %w", surprise(err))
	}
	fmt.Printf("bad request: INVALID_ARGUMENT, %s: %s\n", fumehood.Reason(err), status.Convert(err).Message())
	return nil
}

// toolError is err as the *fumehood.ToolError of that code; anything else is a surprise.
func toolError(err error, code string) (*fumehood.ToolError, error) {
	var failure *fumehood.ToolError
	if errors.As(err, &failure) && failure.Code == code {
		return failure, nil
	}
	return nil, fmt.Errorf("%s was expected: %w", code, surprise(err))
}

// surprise is err, or says that there was none.
func surprise(err error) error {
	if err == nil {
		return errors.New("the call succeeded")
	}
	return err
}
