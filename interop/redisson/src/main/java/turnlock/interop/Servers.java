package turnlock.interop;

import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;

/**
 * Parses addresses: {@code redis://host:port} for one server, {@code redis+sentinel://host:port,…/name} for the master
 * that sentinels monitor under this name, {@code redis+cluster://host:port,…} for a cluster.
 */
final class Servers {
    private static final String SENTINELS = "redis+sentinel://";
    private static final String CLUSTER = "redis+cluster://";

    private Servers() {}

    /** Uses Redisson's default settings, except for smaller connection pools. */
    static void configure(Config config, String address) {
        if (address.startsWith(SENTINELS)) {
            int slash = address.lastIndexOf('/');
            small(config.useSentinelServers())
                    .setMasterName(address.substring(slash + 1))
                    .addSentinelAddress(nodes(address.substring(SENTINELS.length(), slash)));
        } else if (address.startsWith(CLUSTER)) {
            small(config.useClusterServers()).addNodeAddress(nodes(address.substring(CLUSTER.length())));
        } else {
            config.useSingleServer()
                    .setAddress(address)
                    .setConnectionPoolSize(16)
                    .setConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1);
        }
    }

    private static <T extends BaseMasterSlaveServersConfig<T>> T small(T servers) {
        return servers.setMasterConnectionPoolSize(16)
                .setMasterConnectionMinimumIdleSize(1)
                .setSlaveConnectionPoolSize(16)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1);
    }

    private static String[] nodes(String list) {
        String[] nodes = list.split(",");
        for (int index = 0; index < nodes.length; index++) {
            nodes[index] = "redis://" + nodes[index];
        }
        return nodes;
    }
}
