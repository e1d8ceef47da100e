"""Building blocks shared by pages: styled text, tables, header, tabs."""
