"""Configurations as the hosts' own pages show them, one server of each kind."""

from __future__ import annotations

CLAUDE_DESKTOP = """
{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/data", "/srv/more data"]
    },
    "time": {"command": "uvx", "args": ["mcp-server-time==2026.1.1", "--local-timezone=Europe/Berlin"]},
    "github": {
      "command": "docker",
      "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN}"}
    }
  }
}
"""

VSCODE = """
{
  // Asked for when the server starts.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
    {"type": "promptString", "id": "region", "description": "Region", "default": "eu"},
    {"type": "pickString", "id": "model", "description": "Model", "options": ["small", "large"], "default": "small"},
  ],
  "servers": {
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask", "--region", "${input:region}", "${workspaceFolder}/notes"],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "MODEL": "${input:model}", "PORT": 8080, "PATH": null},
      "envFile": "${workspaceFolder}/.env",
    },
    /* hosted elsewhere */
    "context7": {"type": "http", "url": "https://mcp.context7.com/mcp", "headers": {"K": "${input:perplexity-key}"}},
    "boxed": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@example/mcp-server"],
      "sandboxEnabled": true,
      "sandbox": {
        "filesystem": {"allowWrite": ["${workspaceFolder}"], "denyRead": ["${userHome}/.ssh"]},
        "network": {"allowedDomains": ["api.example.com", "*.cdn.example.com"]}
      },
      "dev": {"watch": "src/**"}
    }
  }
}
"""

CURSOR = """
{
  "mcpServers": {
    "local": {
      "command": "node",
      "args": ["${workspaceFolder}/server/index.js", "${userHome}/notes", "${/}srv"],
      "env": {"API_KEY": "${env:MY_API_KEY}", "MODE": "${env:MODE}"}
    },
    "remote": {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
  }
}
"""

CLAUDE_CODE = """
{
  "mcpServers": {
    "paths": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@example/paths@1.2.3", "${DATA_FOLDER:-/srv/data}", "$PLAIN", "${DATA_FOLDER}"],
      "env": {"CACHE": "${CACHE:-}", "LEVEL": "${LEVEL:-info}"}
    },
    "events": {"type": "sse", "url": "${BASE:-https://api.example.com}/sse"},
    "streams": {"type": "http", "url": "https://api.example.com/mcp", "headersHelper": "/bin/tell"}
  }
}
"""
