from collections import Counter

from router.placement.search.partition import first_fit, halves, joined, neighbours, partitions
from tests.router.placement.worlds import catalogue, cluster, random_world
from tests.seeds import each_seed


def sizes(groups):
    return [group.num_devices for group in groups]


def test_groups_are_equal_powers_of_two_that_fit_a_host():
    found = partitions(cluster(8, 8), catalogue({"a": 13.0}, sizes=(1, 2, 3, 4, 8, 16)))
    assert [sizes(groups) for groups in found] == [[1] * 16, [2] * 8, [4] * 4, [8] * 2]


def test_two_groups_become_one_where_a_service_needs_more():
    found = partitions(cluster(8), catalogue({"small": 13.0, "large": 130.0}))
    assert [sizes(groups) for groups in found] == [[2, 1, 1, 1, 1, 1, 1], [2] * 4, [4] * 2, [8]]


def test_groups_are_merged_as_often_as_it_takes():
    [first, *_] = partitions(cluster(8), catalogue({"a": 13.0, "b": 250.0, "c": 130.0}))
    assert sorted(sizes(first)) == [1, 1, 2, 4]


def test_services_that_can_share_a_merged_group_need_one_only():
    [first, *_] = partitions(cluster(8), catalogue({"a": 13.0, "b": 138.0, "c": 138.0}, max_sharing=3))
    assert sorted(sizes(first)) == [1, 1, 1, 1, 2, 2]  # two of them do not fit in 4 devices less their KV
    [first, *_] = partitions(cluster(8), catalogue({"a": 1.0, "b": 80.0, "c": 60.0}))
    assert sorted(sizes(first)) == [1, 1, 1, 1, 1, 1, 2]


@each_seed(range(30))
def test_each_device_is_in_one_group_of_its_host(seed):
    hosts, services, _ = random_world(seed)
    for groups in partitions(hosts, services):
        devices = Counter((g.host, g.first + index) for g in groups for index in range(g.num_devices))
        assert set(devices.values()) <= {1}
        for host, num_devices in hosts.hosts.items():
            assert {device for where, device in devices if where == host} <= set(range(num_devices))
        assert len({group.id for group in groups}) == len(groups)


@each_seed(range(30))
def test_merging_makes_room_for_each_service_unless_devices_run_out(seed):
    hosts, services, _ = random_world(seed)
    for groups in partitions(hosts, services):
        for name in first_fit(groups, services, services.services):
            need = services.least_devices(name, hosts.largest_group)
            assert need is None or not [pair for pair in neighbours(groups) if 2 * pair[0].num_devices <= need]


@each_seed(range(30))
def test_all_ways_include_those_that_pruning_leaves(seed):
    hosts, services, _ = random_world(seed, most_devices=4)

    def shapes(pruned):
        return {
            tuple(sorted((g.host, g.num_devices) for g in groups))
            for groups in partitions(hosts, services, pruned=pruned)
        }

    assert shapes(pruned=True) <= shapes(pruned=False)


def test_all_ways_are_every_sum_of_known_sizes():
    found = partitions(cluster(4), catalogue({"a": 13.0}, sizes=(1, 2, 4)), pruned=False)
    assert sorted(map(sizes, found)) == [[1, 1, 1, 1], [2, 1, 1], [2, 2], [4]]


def test_halves_joined_are_the_group_they_came_from():
    [group, *_] = partitions(cluster(8), catalogue({"a": 250.0}, sizes=(1, 2, 4)))[0]
    assert joined(*halves(group)) == group
    assert joined(*halves(group)).id == "node-0/0-3"
