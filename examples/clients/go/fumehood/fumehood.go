// Package fumehood is what a program needs of Fumehood's gRPC API beside the generated code: requests with JSON arguments,
// and failures as errors that errors.As finds.
package fumehood

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fumehood/examples/clients/go/gen/fumehood/v1"
)

// Deadline is for calls that are expected to be quick; it covers the start of a worker. Never call without one.
const Deadline = 30 * time.Second

const domain = "fumehood"

// ToolError says that the tool was called, or could not be, and that the answer is a failure. Switch on Code, never on
// Message.
type ToolError struct {
	Code      string
	Category  pb.FailureCategory
	Retryable bool
	Message   string
	Details   json.RawMessage // a JSON object; docs/protocol.md lists the keys of each code
}

func (e *ToolError) Error() string { return e.Code + ": " + e.Message }

// Argument is one entry of `arguments` in the details of a call whose arguments do not fit the tool's schema.
type Argument struct {
	Pointer string `json:"pointer"`
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// Request makes a call's request. Arguments travel as JSON text: a protobuf Struct would turn each integer into a double.
func Request(tool string, arguments any) (*pb.CallToolRequest, error) {
	text, err := json.Marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", tool, err)
	}
	return &pb.CallToolRequest{Tool: tool, ArgumentsJson: string(text)}, nil
}

// Call calls a tool and reads its structured output into details, unless that is nil. The error is a *ToolError if the
// call itself failed, else a gRPC status. timeout bounds the call beside ctx and is answered with TOOL_TIMEOUT; 0 is none.
func Call(
	ctx context.Context, client pb.ToolServiceClient, tool string, arguments any, timeout time.Duration, details any,
) (*pb.ToolResult, error) {
	request, err := Request(tool, arguments)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		request.Timeout = durationpb.New(timeout)
	}
	response, err := client.CallTool(ctx, request)
	if err != nil {
		return nil, err
	}
	result := response.GetResult()
	if err := Failure(result); err != nil {
		return result, err
	}
	if details == nil {
		return result, nil
	}
	if err := json.Unmarshal([]byte(result.GetDetailsJson()), details); err != nil {
		return result, fmt.Errorf("details of %s: %w", tool, err)
	}
	return result, nil
}

// Failure is the *ToolError of a result, nil if the call succeeded.
func Failure(result *pb.ToolResult) error {
	if !result.GetIsError() {
		return nil
	}
	failure := result.GetError()
	return &ToolError{
		Code:      failure.GetCode(),
		Category:  failure.GetCategory(),
		Retryable: failure.GetRetryable(),
		Message:   failure.GetMessage(),
		Details:   json.RawMessage(failure.GetDetailsJson()),
	}
}

// Reason is the machine-readable reason of a status, such as REQUEST_INVALID. Empty means that gRPC itself made the status.
func Reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason()
		}
	}
	return ""
}
