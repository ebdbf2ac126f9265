package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"

	"fumehood/examples/clients/go/fumehood"
	pb "fumehood/examples/clients/go/gen/fumehood/v1"
)

const (
	sessionCalls = 20
	cancelledID  = "count-to-cancel"
	refusedID    = "names-no-tool"
)

// useSession makes many calls over one stream, told apart by their ids, answered in any order.
func useSession(ctx context.Context, client pb.ToolServiceClient) error {
	ctx, cancel := context.WithCancel(ctx) // a step that returns early ends the stream, and the writer with it
	defer cancel()
	stream, err := client.Session(ctx)
	if err != nil {
		return err
	}
	requests, err := sessionRequests()
	if err != nil {
		return err
	}
	waiting := make(map[string]bool, len(requests))
	for _, request := range requests {
		waiting[request.GetCall().GetCallId()] = true
	}

	// Write beside the reading: a client that only writes fills both buffers and stops. One goroutine may send while
	// another receives; two may not send at once.
	written := make(chan error, 1)
	go func() { written <- send(stream, requests) }()

	var finished, refused, cancelled int
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch event := response.GetEvent().(type) {
		case *pb.SessionResponse_Update:
			// It runs, so it can be cancelled: once. NotFound would mean that it has just ended.
			if event.Update.GetSequence() == 1 {
				request := &pb.CancelCallRequest{CallId: event.Update.GetCallId(), Reason: "seen enough"}
				if _, err := client.CancelCall(ctx, request); err != nil {
					return err
				}
			}
		case *pb.SessionResponse_Finished:
			delete(waiting, event.Finished.GetCallId())
			failure := fumehood.Failure(event.Finished)
			if event.Finished.GetCallId() == cancelledID {
				if _, err := toolError(failure, "CANCELLED_SIGNAL"); err != nil {
					return err
				}
				cancelled++
			} else if failure != nil {
				return failure
			} else {
				finished++
			}
		case *pb.SessionResponse_Refused:
			refusal := event.Refused
			delete(waiting, refusal.GetCallId())
			if refusal.GetCallId() != refusedID || codes.Code(refusal.GetStatusCode()) != codes.InvalidArgument ||
				refusal.GetError().GetCode() != "REQUEST_INVALID" {
				return fmt.Errorf("not the refusal that was expected: %v", refusal)
			}
			refused++
		}
	}
	if err := <-written; err != nil {
		return err
	}
	if len(waiting) != 0 || finished != sessionCalls || refused != 1 || cancelled != 1 {
		return fmt.Errorf("%d finished, %d refused, %d cancelled, never answered: %v", finished, refused, cancelled, waiting)
	}
	fmt.Printf("session: %d finished, %d refused (REQUEST_INVALID), %d cancelled (CANCELLED_SIGNAL)\n",
		finished, refused, cancelled)
	return nil
}

// sessionRequests are a call to cancel, one to be refused, and many to finish.
func sessionRequests() ([]*pb.SessionRequest, error) {
	count, err := fumehood.Request("slow_count", countArguments{Upto: 1000, DelayMs: 20})
	if err != nil {
		return nil, err
	}
	count.CallId = cancelledID
	requests := []*pb.SessionRequest{
		{Request: &pb.SessionRequest_Call{Call: count}, Updates: true},
		{Request: &pb.SessionRequest_Call{Call: &pb.CallToolRequest{CallId: refusedID}}},
	}
	for number := range sessionCalls {
		call, err := fumehood.Request("roll_dice", diceArguments{Count: 1, Sides: 20})
		if err != nil {
			return nil, err
		}
		call.CallId = fmt.Sprintf("roll-%d", number)
		requests = append(requests, &pb.SessionRequest{Request: &pb.SessionRequest_Call{Call: call}})
	}
	return requests, nil
}

// send writes all requests and half-closes the stream: calls under way finish, then the responses end too.
func send(stream pb.ToolService_SessionClient, requests []*pb.SessionRequest) error {
	for _, request := range requests {
		// io.EOF means that the stream has broken; its cause comes from Recv.
		if err := stream.Send(request); err != nil {
			return err
		}
	}
	return stream.CloseSend()
}
