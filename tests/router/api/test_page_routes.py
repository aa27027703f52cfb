"""GET /ui/ on the admin address."""

import re


async def test_the_page_comes_with_a_strict_policy(gateway):
    response = await gateway.admin.get("/ui/")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    for script in re.findall(r'src="([^"]+)"', response.text):
        assert (await gateway.admin.get(f"/ui/{script}")).status_code == 200


async def test_paths_lead_to_the_page(gateway):
    for path in ("/", "/ui"):
        response = await gateway.admin.get(path)
        assert (response.status_code, response.headers["location"]) == (307, "/ui/")


async def test_a_browser_that_has_a_file_is_not_sent_it_again(gateway):
    etag = (await gateway.admin.get("/ui/main.js")).headers["etag"]
    again = await gateway.admin.get("/ui/main.js", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")


async def test_no_path_leads_out_of_the_page(gateway):
    for path in ("/ui/../__init__.py", "/ui/%2e%2e/files.py", "/ui/static/main.js", "/ui/nothing.js"):
        assert (await gateway.admin.get(path)).status_code == 404


async def test_clients_have_no_page(gateway):
    assert (await gateway.client.get("/ui/")).status_code == 404
