import fumehood.v1.CallToolRequest;
import fumehood.v1.ToolResult;
import fumehood.v1.ToolServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.concurrent.TimeUnit;

class Call {
    public static void main(String[] args) {
        ManagedChannel channel = Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
        try {
            CallToolRequest request = CallToolRequest.newBuilder()
                .setTool("roll_dice").setArgumentsJson("{\"count\": 2, \"sides\": 6}").build();
            ToolResult result = ToolServiceGrpc.newBlockingStub(channel)
                .withDeadlineAfter(10, TimeUnit.SECONDS).callTool(request).getResult();
            if (result.getIsError()) {
                System.err.println(result.getError().getCode() + ": " + result.getError().getMessage());
            } else {
                System.out.println("rolled " + result.getDetailsJson());
            }
        } catch (StatusRuntimeException refused) {
            System.err.println("nothing ran: " + refused.getStatus());
        } finally {
            channel.shutdownNow();
        }
    }
}
